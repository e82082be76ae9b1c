"""The seven models, trained once for all tests here; their data and the cache are gone."""

import json
import shutil
import sys

import pytest

from negwise.cli import main
from tests.inference.inference_world import MODELS, arguments, queries_of, write_data


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """A folder with ``runs/<model>`` and ``queries.json``, and nothing else."""
    home = tmp_path_factory.mktemp("inference")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEGWISE_CACHE", str(home / "cache"))
        data = write_data(home / "data")
        asked = {}
        for model in MODELS:
            patch.setattr(sys, "argv", ["negwise", *arguments(model, data, home / "runs" / model)])
            with pytest.raises(SystemExit) as ended:
                main()
            assert not ended.value.code
            asked[model] = queries_of(model, data)
    (home / "queries.json").write_text(json.dumps(asked))
    shutil.rmtree(data)
    shutil.rmtree(home / "cache")
    return home
