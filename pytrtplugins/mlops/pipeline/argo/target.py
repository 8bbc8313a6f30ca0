"""The cluster with Argo Workflows that a pipeline is exported for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from ....errors import UsageError
from ....utils.declared import check_fields
from ....utils.text_formats import shorten

__all__ = ["ArgoTarget", "Kind", "Store"]

Kind = Literal["workflow", "template", "cron", "event", "data"]
"""A Workflow; a WorkflowTemplate; a CronWorkflow; a WorkflowTemplate that a WorkflowEventBinding starts, or new data in the bucket."""
Store = Literal["s3", "gcs", "oss"]
"""What keeps artifacts: S3, Google Cloud Storage, Alibaba Cloud's Object Storage Service."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_BUCKET = re.compile(r"[a-z0-9][-a-z0-9._]{1,220}[a-z0-9]")
_VOLUME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?:(/[\w.-]+)+")
_IMAGE = re.compile(r"[A-Za-z0-9][\w./:@-]{0,400}")
_TIMEZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}")
_ENDPOINT = re.compile(r"(https?://)?[A-Za-z0-9.:-]{1,250}/?")


@dataclass(frozen=True)
class ArgoTarget:
    """Settings of the cluster for a pipeline's steps.

    Attributes:
        image: The container image of all steps, which has this package and, in `folder`, what the pipeline's own code is.
        kind: What is written.
        store: What keeps artifacts.
        bucket: In which bucket; empty: in the cluster's default artifact repository.
        endpoint: Host of the store; empty: that of AWS. Google's needs none.
        insecure: Whether the store is reached without TLS.
        prefix: Folder in the bucket; empty: the pipeline's name.
        store_secret: Secret with the store's keys ``accessKey`` and ``secretKey`` (Google: ``serviceAccountKey``); empty: those of the
            service account.
        secret: Secret with the values of the steps' secrets, by their names; empty: ``NAME-secrets``.
        service_account: What pods run as; empty: the namespace's default.
        namespace: Empty: the one that is used to submit.
        folder: The steps' working directory in the image, an absolute path.
        in_image: Files and folders of the pipeline that are in the image; Python files are, too. Others come from the bucket.
        volumes: Persistent volume claims that all steps see, each as ``CLAIM:/path``: what is outside of the pipeline, such as a registry.
        timezone: Of a CronWorkflow's schedule; empty: the cluster's.
        concurrency: What a CronWorkflow does when its last run has not come to its end.
    """

    image: str
    kind: Kind = "workflow"
    store: Store = "s3"
    bucket: str = ""
    endpoint: str = ""
    insecure: bool = False
    prefix: str = ""
    store_secret: str = ""
    secret: str = ""
    service_account: str = ""
    namespace: str = ""
    folder: str = "/work"
    in_image: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    timezone: str = ""
    concurrency: Literal["Allow", "Forbid", "Replace"] = "Forbid"

    def __post_init__(self) -> None:
        check_fields(self)
        for name, pattern in (
            ("image", _IMAGE),
            ("bucket", _BUCKET),
            ("endpoint", _ENDPOINT),
            ("store_secret", _NAME),
            ("secret", _NAME),
            ("service_account", _NAME),
            ("namespace", _NAME),
            ("timezone", _TIMEZONE),
        ):
            value = getattr(self, name)
            if (value or name == "image") and not pattern.fullmatch(value):
                raise UsageError(f"{name.replace('_', '-')}: {shorten(value)} is no name that a cluster takes")
        for volume in self.volumes:
            if not _VOLUME.fullmatch(volume):
                raise UsageError(f"volume: expected CLAIM:/path, found {shorten(volume)}")
        if not PurePosixPath(self.folder).is_absolute() or "{{" in self.folder:
            raise UsageError(f"folder: expected an absolute path in the image, found {shorten(self.folder)}")
        if self.bucket and self.store == "oss" and not self.endpoint:
            raise UsageError("OSS needs its endpoint.\nDo: --endpoint oss-eu-central-1.aliyuncs.com")
        if not self.bucket and (self.endpoint or self.store_secret):
            raise UsageError("endpoint and store-secret need a bucket.\nDo: --bucket NAME")
        if self.prefix and not re.fullmatch(r"[\w.-]+(/[\w.-]+)*", self.prefix):
            raise UsageError(f"prefix: expected names with / between them, found {shorten(self.prefix)}")

    @property
    def pinned(self) -> bool:
        """Whether the image is named by its digest."""
        return "@sha256:" in self.image
