"""What can be asked: one frozen type a verb, with names, types, defaults and help in one place."""

from __future__ import annotations

from negwise.requests.model_requests import EncodeRequest, ExportRequest, RecommendRequest
from negwise.requests.option_fields import Option, identity_of, options_of
from negwise.requests.page_requests import (
    DataRequest,
    EstimateRequest,
    ExploreRequest,
    ReportRequest,
    ReproduceRequest,
    ScheduleRequest,
)
from negwise.requests.training_requests import (
    MODEL_NAMES,
    PRECISIONS,
    TASK_OF,
    RunRequest,
    SweepRequest,
    TrainRequest,
    parse_duration,
)

__all__ = [
    "MODEL_NAMES",
    "PRECISIONS",
    "TASK_OF",
    "DataRequest",
    "EncodeRequest",
    "EstimateRequest",
    "ExploreRequest",
    "ExportRequest",
    "Option",
    "RecommendRequest",
    "ReportRequest",
    "ReproduceRequest",
    "RunRequest",
    "ScheduleRequest",
    "SweepRequest",
    "TrainRequest",
    "identity_of",
    "options_of",
    "parse_duration",
]
