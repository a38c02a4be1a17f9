// SPDX-License-Identifier: Apache-2.0

package main

// Labels of the receiver's metrics, as the collector's Prometheus exporter names attributes. A
// renamed attribute is changed here, and for energy measure in internal/measure/names.go.
const (
	labelZone     = "energy_zone"
	labelSource   = "energy_method"
	labelState    = "energy_state"
	labelHost     = "host_name"
	labelOverflow = "otel_metric_overflow"

	labelPID         = "process_pid"
	labelCreated     = "process_creation_time"
	labelExecutable  = "process_executable_name"
	labelPath        = "process_executable_path"
	labelCommandLine = "process_command_line"
	labelParent      = "process_parent_pid"
	labelOwner       = "process_owner"
	labelDescendants = "process_descendants"

	labelContainer = "container_id"
	labelPod       = "k8s_pod_uid"
	labelVM        = "vm_id"
	labelUnit      = "systemd_unit_name"
	labelJob       = "slurm_job_id"
	labelStep      = "slurm_step_id"
)
