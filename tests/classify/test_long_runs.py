"""What must go on holding over many calls: forks during training, and no leak."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import hashembed

FORKS, MANY_FORKS = 3, 40
CALLS, MANY_CALLS = (1_000, 10), (20_000, 200)  # predictions and fits

WARM_UP = """
import os, random, signal, sys, threading, time
from hashembed import TextClassifier
words = [f"word{i}" for i in range(300)]
rng = random.Random(0)
texts = [" ".join(rng.choices(words, k=200)) for _ in range(400)]
labels = ["+" if text.count("word1") % 2 else "-" for text in texts]
def fit(passes=1):
    settings = dict(num_embeddings=5000, num_buckets=500, embedding_dim=16, threads=2)
    return TextClassifier(**settings, passes=passes, batch_size=64).fit(texts, labels)
model = fit()
answers = model.predict(texts).tolist()
"""

FORKING = """
done = threading.Event()
def train():
    while not done.is_set():
        fit(3)
trainer = threading.Thread(target=train)
trainer.start()
bad = 0
for _ in range(int(sys.argv[1])):
    time.sleep(rng.uniform(0, 0.02))
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a child that waits for threads which it has not would wait for ever
        right = model.predict(texts).tolist() == answers
        right = right and fit().predict(texts).tolist() == answers
        os._exit(0 if right else 1)
    bad += os.waitpid(child, 0)[1] != 0
done.set()
trainer.join()
print(bad)
"""

LEAKING = """
import gc
def used():
    gc.collect()
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024, len(os.listdir("/proc/self/fd"))
predictions, fits = map(int, sys.argv[1:])
for _ in range(500):
    model.predict_proba(texts[:3])
before = used()
for i in range(predictions):
    model.predict_proba(texts[i % 100 : i % 100 + 3])
after = used()
print("predictions", after[0] - before[0], after[1] - before[1])
for _ in range(5):
    fit()
before = used()
for _ in range(fits):
    fit()
after = used()
print("fits", after[0] - before[0], after[1] - before[1])
"""


def run(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WARM_UP + code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(Path(hashembed.__file__).parent.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_forks_during_training():
    assert run(FORKING, FORKS) == ["0"]


@pytest.mark.slow
def test_many_forks_during_training():
    bad = run(FORKING, MANY_FORKS)
    print(f"\n{MANY_FORKS} forks during training, {bad[0]} children that failed")
    assert bad == ["0"]


def check_leaks(calls, kilobytes):
    _, predicted, predicted_files, _, fitted, fitted_files = run(LEAKING, *calls)
    print(f"\nafter {calls} predictions and fits: {predicted} and {fitted} kB more")
    assert int(predicted) < kilobytes
    assert int(fitted) < kilobytes
    assert int(predicted_files) == int(fitted_files) == 0


def test_nothing_leaks():
    check_leaks(CALLS, 20_000)


@pytest.mark.slow
def test_nothing_leaks_over_many_calls():
    check_leaks(MANY_CALLS, 20_000)
