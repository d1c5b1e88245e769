"""What two ranks found: each module of tests says in ``work(rank, folder)`` what they do, once for all its tests."""

import pytest

from tests.ranks.spawn import on_two_ranks


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def ranks(request, folder):
    return on_two_ranks(request.module.work, folder)
