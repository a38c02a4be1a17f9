{{- define "name" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride }}
{{- else if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "namespace" -}}
{{ .Values.createNamespace | default .Release.Namespace }}
{{- end }}

{{- define "selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "metadata" -}}
name: {{ include "name" . }}
namespace: {{ include "namespace" . }}
labels:
  {{- include "labels" . | nindent 2 }}
{{- end }}

{{- define "labels" -}}
{{ include "selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "openshift" -}}
{{- if or .Values.openshift (.Capabilities.APIVersions.Has "security.openshift.io/v1/SecurityContextConstraints") }}true{{ end }}
{{- end }}

{{- define "scrapes" -}}
{{- if or .Values.prometheus.enabled .Values.podMonitor.enabled }}true{{ end }}
{{- end }}

{{- /* Four fifths of the memory limit in MiB, or nothing if the limit has another unit than Mi or Gi. */}}
{{- define "memory" -}}
{{- $limit := dig "limits" "memory" "" .Values.resources | toString }}
{{- if hasSuffix "Mi" $limit }}{{ div (mul (trimSuffix "Mi" $limit | int) 4) 5 }}
{{- else if hasSuffix "Gi" $limit }}{{ div (mul (trimSuffix "Gi" $limit | int) 4096) 5 }}
{{- end }}
{{- end }}

{{- /* Capabilities of the collector. The profiler loads more kinds of BPF programs, locks memory, and reads kernel symbols. */}}
{{- define "capabilities" -}}
{{- ternary (list "SYS_PTRACE" "BPF" "PERFMON" "SYS_ADMIN" "SYS_RESOURCE" "SYSLOG") (list "SYS_PTRACE" "BPF" "PERFMON") . | join ", " }}
{{- end }}

{{- /* The affinity of a DaemonSet. excludes is the label of nodes that have another DaemonSet. Terms are alternatives, so each gets it. */}}
{{- define "affinity" -}}
{{- $affinity := deepCopy (.root.Values.affinity | default dict) }}
{{- with .excludes }}
{{- $isOther := dict "key" . "operator" "NotIn" "values" (list "true") }}
{{- $terms := list }}
{{- range dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" "nodeSelectorTerms" (list dict) $affinity }}
{{- $terms = append $terms (merge (dict "matchExpressions" (append (.matchExpressions | default list) $isOther)) .) }}
{{- end }}
{{- $required := dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) }}
{{- $affinity = mergeOverwrite $affinity (dict "nodeAffinity" $required) }}
{{- end }}
{{- with $affinity }}{{ toYaml . }}{{ end }}
{{- end }}

{{- /* The collector's configuration: that of deploy/kubernetes, changed by the values. The context is a dict of root, nvidia and profiles. */}}
{{- define "config" -}}
{{- $v := .root.Values }}
{{- $config := .root.Files.Get "files/config.yaml" | fromYaml }}
{{- $energy := $config.receivers.energy }}
{{- $_ := set $energy "collection_interval" $v.collectionInterval }}
{{- $_ := set $energy "model" $v.model }}
{{- if $v.redfish.endpoint }}
{{- $redfish := dict "endpoint" $v.redfish.endpoint "username" "${env:REDFISH_USERNAME}" "password_file" "/etc/redfish/password" "tls" $v.redfish.tls }}
{{- $_ := set $energy "meters" (dict "redfish" $redfish) }}
{{- end }}
{{- if .nvidia }}
{{- $_ := set $energy "meters" (merge (dict "gpu" (dict "extensions" (list "nvml"))) ($energy.meters | default dict)) }}
{{- $_ := set $config.extensions "nvml" dict }}
{{- $_ := set $config.service "extensions" (append $config.service.extensions "nvml") }}
{{- end }}
{{- if .profiles }}
{{- $_ := set $config.receivers "profiling" (dict "samples_per_second" 20 "error_mode" "ignore" "pid_namespace_translation" false "clock_sync_interval" "10s") }}
{{- $_ := set $config.processors "energyprofile" dict }}
{{- $byContainer := dict "sources" (list (dict "from" "resource_attribute" "name" "container.id")) }}
{{- $_ := set $config.processors.k8s_attributes "pod_association" (append $config.processors.k8s_attributes.pod_association $byContainer) }}
{{- $_ := set $config.exporters "otlp_http/profiles" (dict "endpoint" $v.profiles.endpoint) }}
{{- $processors := list "memory_limiter" "energyprofile" "k8s_attributes" "resource" }}
{{- $_ := set $config.service.pipelines "profiles" (dict "receivers" (list "profiling") "processors" $processors "exporters" (list "otlp_http/profiles")) }}
{{- end }}
{{- with include "memory" .root }}
{{- $_ := set $config.processors "memory_limiter" (dict "check_interval" "10s" "limit_mib" (int .) "spike_limit_mib" (div (int .) 5)) }}
{{- end }}
{{- with $v.clusterName }}
{{- $name := dict "key" "k8s.cluster.name" "value" . "action" "upsert" }}
{{- $_ := set $config.processors.resource "attributes" (append $config.processors.resource.attributes $name) }}
{{- $_ := set $config.service.telemetry.resource "k8s.cluster.name" . }}
{{- end }}
{{- $pipeline := $config.service.pipelines.metrics }}
{{- $metrics := $config.service.telemetry.metrics }}
{{- if not $v.otlp.endpoint }}
{{- $_ := unset $config.exporters "otlp_grpc" }}
{{- $_ := set $pipeline "exporters" list }}
{{- $_ := set $metrics "readers" list }}
{{- else if $v.otlp.headers }}
{{- $_ := set $config.exporters.otlp_grpc "headers" $v.otlp.headers }}
{{- $headers := list }}
{{- range $name, $value := $v.otlp.headers }}{{ $headers = append $headers (dict "name" $name "value" $value) }}{{ end }}
{{- $_ := set (index $metrics.readers 0).periodic.exporter.otlp "headers" $headers }}
{{- end }}
{{- if include "scrapes" .root }}
{{- $exporter := dict "endpoint" "[${env:K8S_POD_IP}]:8889" "read_timeout" "5s" "read_header_timeout" "5s" "write_timeout" "10s"
    "resource_to_telemetry_conversion" (dict "enabled" true) "send_timestamps" true
    "metric_expiration" "1m" "without_scope_info" true }}
{{- $_ := set $config.exporters "prometheus" $exporter }}
{{- $_ := set $pipeline "exporters" (append $pipeline.exporters "prometheus") }}
{{- $own := dict "host" "${env:K8S_POD_IP}" "port" 8888 "without_scope_info" true
    "with_resource_constant_labels" (dict "included" (list "host.name" "k8s.cluster.name")) }}
{{- $_ := set $metrics "readers" (append $metrics.readers (dict "pull" (dict "exporter" (dict "prometheus" $own)))) }}
{{- end }}
{{- mergeOverwrite $config (deepCopy $v.config) | toYaml }}
{{- end }}
