"""Job and run folders as the engine writes them, from known curves: what a page must show can be worked out again."""

import json
import math
from pathlib import Path

import numpy as np

import negwise as nw

MU = 2.4
STEPS, EVERY, LOG_EVERY = 600, 30, 5


def auc_at(step, end, speed):
    """Validation AUC of a run that ends at separation ``end``."""
    return float(nw.auc(end * (1 - math.exp(-speed * step / STEPS))))


def scores(auc, hit, queries=500):
    return {
        "auc": auc,
        "auc_se": 0.004,
        "queries": queries,
        "pairs": queries * 100,
        "no_positive": 0,
        "no_negative": 0,
        "metrics": {"hit@5": hit, "hit@5_se": 0.01, "ndcg@10": 0.8 * hit, "ndcg@10_se": 0.01},
    }


def k_of(rule, fraction):
    kind, _, peak = rule.rpartition(":")
    k = float(peak)
    return 1 + (k - 1) * min(1.0, fraction / 0.1) if kind == "warm" else k


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def write_run(
    folder, rule="1", seed=0, steps=STEPS, end=2.1, speed=3.0, per_step=0.05, ended=True, most_k=15.0, **more
):
    """A run folder; returns its result."""
    rng = np.random.default_rng([seed, len(rule)])
    folder.mkdir(parents=True, exist_ok=True)
    run = {"data": "docs", "model": "siamese-cnn", "k": rule, "steps": steps, "seed": seed, "learning_rate": 1e-3}
    config = {
        "run": run | more,
        "split": "random",
        "training": {"steps": steps, "batch_size": 128},
        "data_digest": "d1",
    }
    write_json(folder / "config.json", config)
    lines, clock = [{"kind": "event", "event": "start", "step": 0}], 0.0
    done = steps if ended else steps // 2
    for step in range(done + 1):
        if step and step % LOG_EVERY == 0:
            k = k_of(rule, (step - 1) / (steps - 1))
            clock += LOG_EVERY * per_step * (1 + 0.002 * k)
            log_k1 = math.log(min(k, most_k) + 1)
            bound = 0.9 * log_k1 * (1 - math.exp(-speed * step / steps))
            record = {"k": k, "k_used": min(k, most_k), "loss": log_k1 - bound, "win_rate": 0.9, "log_k1": log_k1}
            lines.append({"kind": "step", "step": step, "time": round(clock, 3), **record, "mi_bound": bound})
        if step % EVERY == 0:
            for split, top, fast in (("train", MU, 4.0), ("val", end, speed)):
                auc = auc_at(step, top, fast) + (0.002 * float(rng.standard_normal()) if step else 0.0)
                lines.append({"kind": "eval", "step": step, "split": split, **scores(auc, auc**2 - 0.2)})
    best = max((line for line in lines if line.get("split") == "val"), key=lambda line: line["auc"])
    result = {
        "steps": steps,
        "best": {"step": best["step"], "auc": best["auc"]},
        "evaluations": {"val": scores(best["auc"], best["auc"] ** 2 - 0.2)},
        "weights": f"checkpoints/{best['step']}",
        "parameters": 123456,
        "seconds": round(clock + 1.5, 3),
        "device": "cpu",
        "precision": "32-true",
        "graphs": False,
        "threads": 1,
        "processes": 1,
        "recommended": {
            "n": 10,
            "queries": 500,
            "coverage": 0.2 + 0.02 * math.log(k_of(rule, 1.0)) + 0.005 * seed,
            "popularity": 14.0 - math.log(k_of(rule, 1.0)),
            "positives_popularity": 8.1,
            "catalogue": 3416,
        },
    }
    test = best["auc"] - 0.004 + 0.002 * float(rng.standard_normal())
    result["evaluations"]["test"] = scores(test, test**2 - 0.2 + 0.03 * math.log(k_of(rule, 1.0)))
    if ended:
        lines.append({"kind": "event", "event": "end", "step": steps})
        write_json(folder / "result.json", result)
    (folder / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return result


def seed_record(place, seed, result, **more):
    return {
        "seed": seed,
        "run": place,
        "state": "done",
        "error": None,
        "steps": result["steps"],
        "seconds": result["seconds"],
        "best_step": result["best"]["step"],
        "val": result["evaluations"]["val"],
        "test": result["evaluations"]["test"],
        "recommended": result["recommended"],
    } | more


def arm_record(root, rule, role, seeds, uses_pilot=False, name=None, **how):
    place = f"arms/{rule.replace(':', '-')}"
    made = [
        seed_record(f"{place}/seed-{seed}", seed, write_run(root / place / f"seed-{seed}", rule, seed, **how))
        for seed in range(seeds)
    ]
    rates = [
        {
            "learning_rate": rate,
            "run": f"tuning/x/lr-{rate}",
            "state": "done",
            "val_auc": auc,
            "seconds": 10.0,
            "error": None,
        }
        for rate, auc in ((3e-4, 0.93), (1e-3, 0.95), (3e-3, 0.94))
    ]
    return {
        "name": name or rule,
        "rule": rule,
        "k": k_of(rule, 1.0),
        "role": role,
        "uses_pilot": uses_pilot,
        "learning_rate": 1e-3,
        "tuning": rates,
        "seeds": made,
    }


def job_record(kind="run", **more):
    return {
        "kind": kind,
        "negwise": "0.1.0",
        "versions": {"python": "3.11.9", "torch": "2.13.0", "numpy": "2.3.0"},
        "machine": {"device": "cpu", "name": "x86_64, 2 cores"},
        "request": {
            "data": "docs",
            "model": "siamese-cnn",
            "schedule": "warm",
            "budget": 600,
            "seeds": 3,
            "steps": None,
        },
        "data": {
            "path": "docs",
            "kind": "text pairs",
            "counts": {"pairs": 22839, "words_per_text": 21.4},
            "density": None,
            "label_balance": None,
            "negatives": {"least": 800, "median": 7999.0, "mean": 7990.5, "most": 7999, "source": "other texts"},
            "splits": ["random"],
            "examples": [{"query": "sort a list", "body": "Return a new sorted list."}],
            "problems": [{"file": "docs.csv", "where": "line 7", "what": "an empty text"}],
            "digest": "d1",
            "truth": None,
        },
        "plan": {
            "lengths": {"pilot_steps": 600, "pilot_eval_every": 30, "steps": 600, "seconds": 280.0, "jobs": 2},
            "times": {"step": 0.05, "evaluation": 0.4, "pilot_step": 0.03, "pilot_evaluation": 0.8},
            "spent": 2.5,
            "threads": 1,
            "training": {"batch_size": 128},
            "notes": ["600 steps take about 31 s here."],
        },
    } | more


def estimate_of(run):
    """The estimate from a run folder's log, by hand."""
    evals = [json.loads(line) for line in (run / "run.jsonl").read_text().splitlines()]
    curve = {s: [e for e in evals if e.get("split") == s] for s in ("train", "val")}
    return nw.optimal_k(
        [e["auc"] for e in curve["train"]],
        [e["auc"] for e in curve["val"]],
        steps=[e["step"] for e in curve["val"]],
        n_queries=[e["queries"] for e in curve["val"]],
        n_pairs=[e["pairs"] for e in curve["val"]],
    )


def write_job(root, seeds=3, **more):
    """A finished `negwise run`: pilot, estimate, three arms; returns its folder."""
    root = Path(root)
    pilot = write_run(root / "pilot/seed-0", "1", 0)
    found = estimate_of(root / "pilot/seed-0")
    write_json(root / "estimate.json", found.to_dict())
    write_json(root / "job.json", job_record())
    arms = [
        arm_record(root, "warm:20", "schedule", seeds, True, end=2.3, speed=4.0),
        arm_record(root, "1", "K=1", seeds),
        arm_record(root, "20", "fixed K*", seeds, True, end=2.25, speed=4.0),
    ]
    results = {
        "kind": "run",
        "pilot": {
            "run": "pilot/seed-0",
            "steps": 600,
            "seconds": pilot["seconds"],
            "converged": True,
            "why": "validation grew by less than 2% over the last third",
        },
        "arms": arms,
        "chosen": "warm:20",
        "model": "arms/warm-20/seed-0",
        "metrics": ["auc", "hit@5", "ndcg@10"],
        "differences": differences(arms, "warm:20", "1", ("auc", "hit@5"))
        + differences(arms, "20", "1", ("auc", "hit@5")),
        "caveats": ["Three seeds: error bars are wide.", "Arms were trained for the same number of steps."],
    }
    write_json(root / "results.json", results | more)
    return root


def baseline_record(name, mean, reach, metrics=("hit@5", "auc"), queries=500, **more):
    """A baseline that the model is ahead of by ``mean``, with a 95% interval of ``reach`` to both sides."""
    gaps = [
        {"metric": m, "mean": mean, "se": reach / 1.96, "low": mean - reach, "high": mean + reach, "queries": queries}
        for m in metrics
    ]
    found = {"name": name, "scores": scores(0.8, 0.4, queries), "differences": gaps}
    return found | {"corpus": scores(0.7, 0.2, queries)} | more


def compared_record(k, mean, reach, **more):
    """Another K that was trained for the same time, as a job with ``--compare`` writes it."""
    trained = {"corpus": None, "trained": True, "k": float(k), "seconds": 30.0}
    return baseline_record(f"K = {k}, same time", mean, reach, **trained, **more)


def share_records(*rows, metric="hit@5"):
    """Rows of K, share of the gain, seconds of a step."""
    return [
        {
            "k": k,
            "metric": metric,
            "share": share,
            "low": max(share - 0.14, 0),
            "high": min(share + 0.14, 1),
            "all": False,
        }
        | {"seconds": seconds}
        for k, share, seconds in rows
    ]


def write_model_job(root, rule="20", epoch=100, **more):
    """A finished `negwise run` that trained one model; returns its folder."""
    root = Path(root)
    record = job_record()
    record["request"] |= {"method": None, "schedule": None, "seeds": 1}
    record["plan"]["times"] |= {"epoch": epoch}
    write_json(root / "job.json", record)
    arm = arm_record(root, rule, "model", 1, end=2.3, speed=5.0) | {"tuning": []}
    results = {
        "kind": "run",
        "arms": [arm],
        "chosen": rule,
        "model": f"arms/{rule}/seed-0",
        "metrics": ["hit@5", "auc"],
        "baselines": [baseline_record("BM25", 0.2, 0.02)],
        "corpus": {"candidates": 22839, "scores": scores(0.9, 0.3)},
        "candidates": 2283.0,
        "shares": share_records((1, 0.0, 0.05), (20, 0.6, 0.05), (100, 0.9, 0.0505), (1000, 1.0, 0.051)),
        "seconds": 90.0,
        "seconds_by_use": {"reading and timing": 2.5, "training the model": 82.0, "loading and this page": 5.5},
    }
    write_json(root / "results.json", results | more)
    return root


def differences(arms, arm, against, metrics):
    by_name = {one["name"]: one for one in arms}
    found = []
    for metric in metrics:
        sides = [
            [s["test"]["auc"] if metric == "auc" else s["test"]["metrics"][metric] for s in by_name[name]["seeds"]]
            for name in (arm, against)
        ]
        gaps = np.subtract(*sides)
        se = float(gaps.std(ddof=1) / math.sqrt(len(gaps))) if len(gaps) > 1 else None
        found.append(
            {"arm": arm, "against": against, "metric": metric, "mean": float(gaps.mean()), "se": se, "seeds": len(gaps)}
            | {"low": None, "high": None}
        )
    return found


def write_sweep(root, rules=("1", "4", "20", "60", "180", "warm:20"), seeds=2, **more):
    """A finished `negwise sweep`; returns its folder."""
    root = Path(root)
    write_json(root / "job.json", job_record("sweep"))
    arms = [
        arm_record(
            root,
            rule,
            "cell",
            seeds,
            end=2.1 + 0.08 * math.log(k_of(rule, 1.0)) - 0.012 * math.log(k_of(rule, 1.0)) ** 2,
        )
        for rule in rules
    ]
    results = {
        "kind": "sweep",
        "pilot": None,
        "arms": arms,
        "chosen": None,
        "model": None,
        "metrics": ["auc", "hit@5"],
        "differences": [],
        "caveats": [],
    }
    write_json(root / "results.json", results | more)
    return root


def edit(path, change):
    """Change a JSON file in place."""
    value = json.loads(Path(path).read_text())
    change(value)
    Path(path).write_text(json.dumps(value))
