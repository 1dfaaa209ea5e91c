{{/* redrive.yaml: config, and the keys that are values of their own. */}}
{{- define "redrive.config" -}}
{{- $own := dict "probe" (printf "%s:%d" .Values.bindAddress (int .Values.probe.port)) "drain" (printf "%ds" (int .Values.drainSeconds)) }}
{{- if eq .Values.mode "gateway" }}
{{- $_ := set $own "listen" (printf "%s:%d" .Values.bindAddress (int .Values.proxy.port)) }}
{{- else }}
{{- $_ := set $own "listen" (printf "127.0.0.1:%d" (int .Values.proxy.port)) }}
{{- end }}
{{- if .Values.admin.expose }}
{{- $listen := printf "%s:%d" .Values.bindAddress (int .Values.admin.port) }}
{{- $admin := dict "listen" $listen "token" "${REDRIVE_ADMIN_TOKEN}" }}
{{- if eq .Values.mode "gateway" }}
{{- $name := include "redrive.fullname" . }}
{{- $inside := printf "%s.%s.svc" $name .Release.Namespace }}
{{- $_ := set $admin "hosts" (list $name (printf "%s.%s" $name .Release.Namespace) $inside (printf "%s.cluster.local" $inside)) }}
{{- end }}
{{- $_ := set $own "admin" $admin }}
{{- else }}
{{- $_ := set $own "admin" (printf "127.0.0.1:%d" (int .Values.admin.port)) }}
{{- end }}
{{- if .Values.intercept.enabled }}
{{- $_ := set $own "ca" (dict "cert" "/etc/redrive-ca/tls.crt" "key" "/etc/redrive-ca/tls.key") }}
{{- end }}
{{- range $key, $_ := $own }}
{{- if hasKey $.Values.config $key }}
{{- fail (printf "config.%s is written by the chart: use its values (mode, proxy, admin, probe, drainSeconds, intercept), or existingConfigMap" $key) }}
{{- end }}
{{- end }}
{{- toYaml (merge $own .Values.config) }}
{{- end }}
