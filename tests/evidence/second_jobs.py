"""What the jobs of tests do, in a module that a process imports at once."""

import os
import signal
import time


def act(folder, job):
    """What a job of these tests does is in its name: its seconds, and how it ends."""
    name = job if isinstance(job, str) else job.k
    if name == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "fails":
        raise ValueError("as it should")
    time.sleep(float(name))
    (folder / f"{name} is done").touch()
    return name
