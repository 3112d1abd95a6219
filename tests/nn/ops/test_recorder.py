"""When a call is recorded, and when its graphs may be used. `tests/nn/gpu` has the graphs."""

import gc
from types import SimpleNamespace

import pytest
import torch
from tests.cases.layer_calls import Case
from tests.cases.triton import call_of

from hashembed.hashing.spec import HashSpec
from hashembed.nn.ops import recorded


class Graphs:
    """Graphs that fit as long as nobody says otherwise."""

    made = 0
    fail = False

    def __init__(self, call, owned, key, fixed_offsets):
        type(self).made += 1
        if self.fail:
            raise RuntimeError("no graphs here")
        self.key, self.user, self.fits = key, None, True

    def fit(self, owned):
        return self.fits

    are_free = recorded.Graphs.are_free


@pytest.fixture(autouse=True)
def graphs(monkeypatch):
    monkeypatch.setattr(recorded, "Graphs", Graphs)
    monkeypatch.setattr(recorded, "_stream", lambda _: 7)
    monkeypatch.setattr(Graphs, "made", 0)
    monkeypatch.setattr(Graphs, "fail", False)


OWNED = [(torch.zeros(1), SimpleNamespace(settings_of=lambda _: "settings"))]
CALL = call_of(Case(HashSpec(20, 5, 2), 3))


def fresh(call=CALL):
    return call._replace(keys=call.keys.clone(), offsets=call.offsets.clone())


def test_a_call_is_recorded_when_it_has_come_several_times():
    recorder = recorded.Recorder()
    found = [recorder.find(fresh(), OWNED) for _ in range(6)]
    assert [graphs is not None for graphs in found] == [False] * 3 + [True] * 3
    assert Graphs.made == 1


def test_nothing_is_recorded_before_the_first_step():
    recorder = recorded.Recorder()
    new = [(torch.zeros(1), SimpleNamespace(settings_of=lambda _: None))]
    assert all(recorder.find(fresh(), new) is None for _ in range(9))


def other_keys(call):
    return call._replace(keys=call.keys[:-1])


def other_offsets(call):
    return call._replace(offsets=call.offsets[:-1])


def other_table(call):
    return call._replace(weight=call.weight.clone())


def other_option(call):
    return call._replace(mean=not call.mean)


@pytest.mark.parametrize("change", [other_keys, other_offsets, other_table, other_option])
def test_other_calls_go_the_ordinary_way_and_the_graphs_stay(change):
    recorder = recorded.Recorder()
    for _ in range(4):
        graphs = recorder.find(fresh(), OWNED)
    assert recorder.find(change(fresh()), OWNED) is None
    assert recorder.find(fresh(), OWNED) is graphs


def test_offsets_that_stay_are_read_where_they_are():
    recorder = recorded.Recorder()
    found = [recorder.find(CALL, OWNED) for _ in range(6)]
    assert found[-1] is not None
    assert CALL.offsets.data_ptr() in found[-1].key
    assert recorder.find(fresh(), OWNED) is None


def test_one_call_at_a_time():
    recorder = recorded.Recorder()
    for _ in range(4):
        graphs = recorder.find(fresh(), OWNED)
    under_way = recorded.RecordedPass(graphs, [], recorder.give_up)
    assert recorder.find(fresh(), OWNED) is None
    under_way.is_done = True
    assert recorder.find(fresh(), OWNED) is graphs
    forgotten = recorded.RecordedPass(graphs, [], recorder.give_up)
    assert recorder.find(fresh(), OWNED) is None
    del forgotten
    gc.collect()
    assert recorder.find(fresh(), OWNED) is graphs


def test_graphs_that_do_not_fit_any_more_are_made_again_ever_more_rarely():
    recorder, calls = recorded.Recorder(), []
    for _ in range(3):
        count = 0
        while recorder.find(fresh(), OWNED) is None:
            count += 1
        calls.append(count)
        recorder.graphs.fits = False
    assert Graphs.made == 3
    assert calls[0] < calls[2]


def test_where_there_can_be_no_graphs_nobody_tries_again(monkeypatch):
    monkeypatch.setattr(Graphs, "fail", True)
    recorder = recorded.Recorder()
    assert all(recorder.find(fresh(), OWNED) is None for _ in range(99))
    assert Graphs.made == 1
