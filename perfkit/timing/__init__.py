"""Times the steps of a training, and runs its script as one rank. Needs only the standard
library, so that it also works in the environment of a user's own script.

step_timer.py       perfkit.StepTimer, which is one of the following two
plain_timer.py      without `perfkit run`
measuring_timer.py  in a rank that is measured: the training, or its input alone
profile.py          a training that the framework's profiler traces
told.py             what a script tells the timer
batches.py          batches that pass through the timer
training.py         a training from its first step to the end of the window
rank.py             runs a script as one rank
job.py              what the driver asks of a rank
session.py          the measurement in which this process takes part
rank_process.py     the process of a rank
frameworks.py       the frameworks as the timer sees them
warmup.py           end of an automatic warm-up
peak.py             peak speed of the device
local_modules.py    modules that a script has imported
recorder.py         records the steps of a training
course.py           warm-up, window, over
devices.py          devices as the timer sees them
watched.py          devices of JAX
raw_file.py         the raw events of a rank
failure.py          the failure code of an exception

`huggingface/` times Hugging Face's Trainer, and needs its library when it is used.
"""
