"""What runs in the processes that train.

rank.py     one rank of one repeat
witness.py  what a framework does with given weights and one batch
"""
