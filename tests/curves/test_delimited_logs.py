"""Broken delimited text: each error names the file and the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from negwise.curves import read
from negwise.errors import InputError

FAULTS = {
    "text": ("step,val_auc\n1,.5\n2,abc\n", r"line 3: 'abc' in column 'val_auc' is not a finite number"),
    "nan": ("step,val_auc\n1,nan\n", r"line 2: 'nan' in column 'val_auc' is not a finite number"),
    "infinite": ("step,val_auc\n1,1e999\n", r"line 2: '1e999' in column 'val_auc' is not a finite number"),
    "underscore": ("step,val_auc\n1,0_1\n", r"line 2: '0_1' in column 'val_auc' is not a finite number"),
    "decimal comma": ("step;val_auc\n1;0,5\n", r"line 2: '0,5' in column 'val_auc' is not a finite number"),
    "percent": ("step,val_auc\n1,65.3\n", r"line 2: '65.3' in column 'val_auc' is above 1.*divide it by 100"),
    "negative": ("step,val_auc\n1,-0.1\n", r"line 2: '-0.1' in column 'val_auc' is not an AUC"),
    "far out": ("step,val_auc\n1,101\n", r"line 2: '101' in column 'val_auc' is not an AUC"),
    "train too": ("step,train_auc,val_auc\n1,2,.5\n", r"line 2: '2' in column 'train_auc' is above 1"),
    "back": (
        "step,val_auc\n5,.5\n\n9,.6\n7,.6\n",
        r"line 5: column 'val_auc': after step 9, back to step 7 \(see line 4\)",
    ),
    "conflict": ("step,val_auc\n5,.5\n5,.6\n", r"line 3: column 'val_auc': another value for step 5 \(see line 2\)"),
    "no step": ("step,val_auc\n5,.5\n,.6\n", r"line 3: no value in column 'step', though other lines have one"),
    "bad step": ("step,val_auc\n5 k,.5\n", r"line 2: '5 k' in column 'step' is not a finite number"),
    "negative step": ("step,val_auc\n-1,.5\n", r"line 2: '-1' in column 'step' is a negative step"),
    "no count": ("val_auc,val_queries\n.5,9\n.6,\n", r"line 3: no value in column 'val_queries'"),
    "half a query": ("val_auc,val_queries\n.5,9.5\n", r"line 2: '9.5' in column 'val_queries' is not a count"),
    "no queries": ("val_auc,val_queries\n.5,0\n", r"line 2: '0' in column 'val_queries' is not a count"),
    "huge count": ("val_auc,val_queries\n.5,1e300\n", r"line 2: '1e300' in column 'val_queries' is not a count"),
    "negative se": ("val_auc,val_se\n.5,-.1\n", r"line 2: '-.1' in column 'val_se' is a negative standard error"),
    "short line": ("step,val_auc,loss\n1,.5,3\n2,.6\n", r"line 3: 2 cells under 3 column names"),
    "long line": ("step,val_auc\n1,.5\n\n2,.6,7\n", r"line 4: 3 cells under 2 column names"),
    "open quote": ('step,val_auc\n1,.5\n"2,.6\n3,.7\n', r"line 3: broken line \(unexpected end of data\)"),
    "stray quote": ('step,val_auc\n"1"x,.5\n', r"line 2: broken line"),
    "after a note": ('step,note,val_auc\n1,"a\nb",.5\n2,c,x\n', r"line 4: 'x' in column 'val_auc'"),
    "huge cell": (f"step,val_auc\n1,{'9' * 140_000}\n", r"line 2: broken line \(field larger than field limit"),
    "huge header": ("x" * 140_000, r"line 1: broken line \(field larger than field limit"),
    "same name": ("val_auc,step,val_auc\n.5,1,.6\n", r"line 1: more than one column is called 'val_auc'"),
    "no header": ("0,.5,.6\n1,.5,.6\n", r"line 1: no column names\. Put them first"),
    "commas": (",,,\n,,\n", r"line 1: no column names"),
    "only header": ("step,val_auc\n", r"nothing logged yet: no line holds a value"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults(tmp_path: Path, fault: str) -> None:
    text, message = FAULTS[fault]
    path = tmp_path / "metrics.csv"
    path.write_text(text, newline="")
    with pytest.raises(InputError, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    assert len(str(caught.value)) < len(str(path)) + 400


def test_faults_in_unused_columns_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text(",step,loss,val_auc,\n0,1,nan,.5,x\n1,2,<b>,.75,y\n")
    assert list(read(path).val_auc) == [0.5, 0.75]


def test_lines_without_a_value_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("\n \nstep,val_auc,loss\n\n1,.5,3\n   \n,,\n,\n2,.75,x\n")
    assert list(read(path).val_auc) == [0.5, 0.75]
