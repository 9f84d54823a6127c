"""What NVIDIA's DCGM exporter tells of the GPUs: the fields that are needed, alerts on them, and its list of counters.

Field names: dcgm-exporter's etc/default-counters.csv. Its default list lacks the throttling, the double-bit errors and
the memory's activity, so a list with them is rendered as well (`dcgm-exporter -f counters.csv`).
"""

from __future__ import annotations

from dataclasses import dataclass

from .rule import CRITICAL, WARNING, Alert

__all__ = ["DCGM_FIELDS", "Field", "counters_csv", "gpu_alerts"]

_HOT_C = 85
_FULL = 0.95


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    kind: str
    help: str


DCGM_FIELDS = (
    Field("DCGM_FI_DEV_GPU_TEMP", "gauge", "Temperature of the GPU in C"),
    Field("DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Temperature of the memory in C"),
    Field("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power drawn in W"),
    Field("DCGM_FI_DEV_SM_CLOCK", "gauge", "Clock of the SMs in MHz"),
    Field("DCGM_FI_DEV_GPU_UTIL", "gauge", "Part of the time with a kernel running in percent"),
    Field("DCGM_FI_DEV_FB_USED", "gauge", "Memory in use in MiB"),
    Field("DCGM_FI_DEV_FB_FREE", "gauge", "Memory free in MiB"),
    Field("DCGM_FI_DEV_XID_ERRORS", "gauge", "Number of the last Xid"),
    Field("DCGM_FI_DEV_THERMAL_VIOLATION", "counter", "Time throttled for heat"),
    Field("DCGM_FI_DEV_POWER_VIOLATION", "counter", "Time throttled for power"),
    Field("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter", "Corrected memory errors since the driver was loaded"),
    Field("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "Uncorrected memory errors since the driver was loaded"),
    Field("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter", "Rows remapped for uncorrectable errors"),
    Field("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "1 where a remapping failed"),
    Field("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "PCIe retries"),
    Field("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Part of the cycles in which memory moved data"),
    Field("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "Part of the cycles with tensor cores at work"),
)


def counters_csv() -> str:
    return "".join(f"{field.name}, {field.kind}, {field.help}.\n" for field in DCGM_FIELDS)


def gpu_alerts() -> list[Alert]:
    where = "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}"
    return [
        Alert(
            name="SeekserveGpuExporterDown",
            expr='up{job="dcgm"} == 0',
            for_s=60,
            severity=WARNING,
            summary="the DCGM exporter {{ $labels.instance }} does not answer",
            do="GPU alerts are blind there. Start dcgm-exporter again.",
        ),
        Alert(
            name="SeekserveGpuHot",
            expr=f"DCGM_FI_DEV_GPU_TEMP > {_HOT_C}",
            for_s=60,
            severity=WARNING,
            summary=where + " is at {{ $value }} C",
            do="It will throttle. Airflow, neighbours, power cap; move load away if it stays.",
        ),
        Alert(
            name="SeekserveGpuThrottled",
            expr="increase(DCGM_FI_DEV_THERMAL_VIOLATION[5m]) > 0",
            for_s=60,
            severity=WARNING,
            summary=where + " is throttled for heat",
            do="Steps get longer (SeekserveBiasDrift follows). Cooling first; a lower power cap costs less than "
            "throttling does.",
        ),
        Alert(
            name="SeekserveGpuMemoryFull",
            expr=f"DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE) > {_FULL:g}",
            for_s=10,
            severity=WARNING,
            summary=where + " has {{ $value | humanizePercentage }} of its memory in use",
            do="The KV cache was planned too large, or something else runs there: `nvidia-smi`, then `seekserve plan`.",
        ),
        Alert(
            name="SeekserveGpuEcc",
            expr="increase(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL[10m]) > 0"
            " or increase(DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS[10m]) > 0 or DCGM_FI_DEV_ROW_REMAP_FAILURE > 0",
            severity=CRITICAL,
            summary=where + " has uncorrectable memory errors",
            do="Results may be wrong. Drain the server (`seekserve stop`), reset the GPU, and have it replaced if rows "
            "cannot be remapped.",
        ),
        Alert(
            name="SeekserveGpuXid",
            expr="DCGM_FI_DEV_XID_ERRORS > 0 and changes(DCGM_FI_DEV_XID_ERRORS[10m]) > 0",
            severity=CRITICAL,
            summary=where + " reported Xid {{ $value }}",
            do="Look the number up in NVIDIA's list of Xids; the kernel log has the details. 48, 63, 64, 79, 94, 95: "
            "take the GPU out of service.",
        ),
    ]
