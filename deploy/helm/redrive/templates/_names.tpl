{{/* The chart's name, or what values call it. */}}
{{- define "redrive.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The name of every object: the release's, with the chart's unless it is in it. */}}
{{- define "redrive.fullname" -}}
{{- $name := include "redrive.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Labels of every object. */}}
{{- define "redrive.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{ include "redrive.gatewayLabels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What a gateway's own pods are selected by. */}}
{{- define "redrive.gatewayLabels" -}}
app.kubernetes.io/name: {{ include "redrive.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels for a pod that has this redrive: monitors and network policies find it by them. */}}
{{- define "redrive.podLabels" -}}
redrive-sidecar: {{ include "redrive.fullname" . }}
{{- end }}

{{/* Annotations for a pod that has this redrive; none, unless metrics.annotations. */}}
{{- define "redrive.podAnnotations" -}}
{{- if .Values.metrics.annotations -}}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .Values.probe.port | quote }}
prometheus.io/path: /metrics
{{- end }}
{{- end }}

{{/* Which pods have this redrive. */}}
{{- define "redrive.podSelector" -}}
{{- if .Values.podSelector -}}
{{ toYaml .Values.podSelector }}
{{- else -}}
matchLabels:
  {{- if eq .Values.mode "gateway" }}
  {{- include "redrive.gatewayLabels" . | nindent 2 }}
  {{- else }}
  {{- include "redrive.podLabels" . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The account that pods run under. */}}
{{- define "redrive.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "redrive.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* The ConfigMap with redrive.yaml. */}}
{{- define "redrive.configMapName" -}}
{{ default (include "redrive.fullname" .) .Values.existingConfigMap }}
{{- end }}

{{- define "redrive.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- end }}

{{/* The seconds that a pod gets to end; refuses a grace period that is over before the drain is. */}}
{{- define "redrive.terminationGracePeriodSeconds" -}}
{{- $grace := int .Values.terminationGracePeriodSeconds }}
{{- $drain := int .Values.drainSeconds }}
{{- if eq .Values.mode "gateway" }}
{{- $drain = add $drain .Values.gateway.preStopSeconds | int }}
{{- end }}
{{- if le $grace $drain }}
{{- fail (printf "terminationGracePeriodSeconds (%d) must be longer than the drain (%ds): calls in flight would be cut" $grace $drain) }}
{{- end }}
{{- $grace }}
{{- end }}
