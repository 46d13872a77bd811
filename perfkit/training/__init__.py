"""Training scripts of the built-in models, one folder for each framework.

models.py      facts of the models: FLOPs, settings, defaults; no framework
<framework>/   train.py, a file for each model, verify.py
"""
