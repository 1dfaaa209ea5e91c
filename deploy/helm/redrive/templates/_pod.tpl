{{/*
What a pod's template takes of redrive. In a chart that has this one as its dependency:

  {{- include "redrive.sidecar" .Subcharts.redrive | nindent 8 }}

Each takes the scope of this chart, so that its values are those below `redrive:` in yours.
*/}}

{{/* initContainers: redrive as a native sidecar, and before it what makes the apps' trust, where intercept.enabled. */}}
{{- define "redrive.sidecar" -}}
{{- if ne .Values.mode "sidecar" }}
{{- fail "redrive.sidecar is for mode: sidecar; in mode: gateway pods need redrive.env alone" }}
{{- end }}
{{- with include "redrive.trustContainer" . }}
{{- . }}
{{ end -}}
- name: redrive
  restartPolicy: Always
  {{- include "redrive.container" . | nindent 2 }}
{{- end }}

{{/* redrive's container, without its name: the same in a sidecar and in a gateway. */}}
{{- define "redrive.container" -}}
image: {{ include "redrive.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
ports:
  {{- if eq .Values.mode "gateway" }}
  - name: proxy
    containerPort: {{ .Values.proxy.port }}
  {{- end }}
  - name: probe
    containerPort: {{ .Values.probe.port }}
  {{- if .Values.admin.expose }}
  - name: admin
    containerPort: {{ .Values.admin.port }}
  {{- end }}
{{- with include "redrive.containerEnv" . }}
{{ . }}
{{- end }}
startupProbe:
  httpGet: {path: /readyz, port: probe}
  periodSeconds: 1
  failureThreshold: 30
livenessProbe:
  httpGet: {path: /livez, port: probe}
  periodSeconds: 10
  timeoutSeconds: 3
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: probe}
  periodSeconds: 5
  timeoutSeconds: 3
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  {{- include "redrive.containerMounts" . | nindent 2 }}
{{- end }}

{{/* volumeMounts of redrive's container. */}}
{{- define "redrive.containerMounts" -}}
- name: redrive
  mountPath: /etc/redrive     # the folder: a mounted single file is never updated
  readOnly: true
{{- if .Values.intercept.enabled }}
- name: redrive-ca
  mountPath: /etc/redrive-ca
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{/* env and envFrom of redrive's container; empty where there are none. */}}
{{- define "redrive.containerEnv" -}}
{{- if or .Values.env .Values.admin.expose }}
env:
  {{- if .Values.admin.expose }}
  - name: REDRIVE_ADMIN_TOKEN
    valueFrom:
      secretKeyRef:
        name: {{ required "admin.expose needs admin.tokenSecret.name: beyond loopback the admin port asks for a token" .Values.admin.tokenSecret.name }}
        key: {{ .Values.admin.tokenSecret.key }}
  {{- end }}
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- with .Values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/*
The container that writes, before the apps start, what they trust: the roots of redrive's image and the CA. It has the
CA's certificate and not its key, and the image's own configuration, which looks for the certificate in ca/.
*/}}
{{- define "redrive.trustContainer" -}}
{{- if .Values.intercept.enabled -}}
- name: redrive-trust
  image: {{ include "redrive.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [redrive, ca, export, --to, /trust]
  {{- with .Values.env }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  resources:
    {{- toYaml .Values.resources | nindent 4 }}
  securityContext:
    {{- toYaml .Values.securityContext | nindent 4 }}
  volumeMounts:
    - name: redrive-ca-cert
      mountPath: /etc/redrive/ca
      readOnly: true
    - name: redrive-trust
      mountPath: /trust
    {{- with .Values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- end }}

{{/* volumes: of the sidecar, and of the app beside it. */}}
{{- define "redrive.volumes" -}}
{{- include "redrive.ownVolumes" . }}
{{- with include "redrive.trustVolumes" . }}
{{ . }}
{{- end }}
{{- end }}

{{/* volumes: of redrive's container alone. */}}
{{- define "redrive.ownVolumes" -}}
- name: redrive
  configMap:
    name: {{ include "redrive.configMapName" . }}
{{- if .Values.intercept.enabled }}
- name: redrive-ca
  secret:
    secretName: {{ .Values.intercept.secret }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* volumes: of an app that trusts the CA, without its key. */}}
{{- define "redrive.trustVolumes" -}}
{{- if .Values.intercept.enabled -}}
- name: redrive-ca-cert
  secret:
    secretName: {{ .Values.intercept.secret }}
    items: [{key: tls.crt, path: cert.pem}]
- name: redrive-trust
  emptyDir: {sizeLimit: 4Mi}
{{- end }}
{{- end }}

{{/* volumeMounts: of an app's container; empty, unless intercept.enabled. */}}
{{- define "redrive.volumeMounts" -}}
{{- if .Values.intercept.enabled -}}
- name: redrive-trust
  mountPath: {{ .Values.intercept.trustPath }}
  readOnly: true
{{- end }}
{{- end }}

{{/* env: of an app's container. What points it to redrive and, where intercept.enabled, has it trust the CA. */}}
{{- define "redrive.env" -}}
{{- $host := "127.0.0.1" }}
{{- if eq .Values.mode "gateway" }}
{{- $host = printf "%s.%s.svc" (include "redrive.fullname" .) .Release.Namespace }}
{{- end }}
{{- $port := int .Values.proxy.port }}
{{- range list "HTTP_PROXY" "http_proxy" "HTTPS_PROXY" "https_proxy" "grpc_proxy" }}
- name: {{ . }}
  value: http://{{ $host }}:{{ $port }}
{{- end }}
{{- range list "NO_PROXY" "no_proxy" "no_grpc_proxy" }}
- name: {{ . }}
  value: {{ $.Values.noProxy | quote }}
{{- end }}
- name: NODE_USE_ENV_PROXY
  value: "1"
{{- $trust := .Values.intercept.trustPath }}
{{- if .Values.intercept.enabled }}
{{- range list "SSL_CERT_FILE" "REQUESTS_CA_BUNDLE" "CURL_CA_BUNDLE" "GIT_SSL_CAINFO" "AWS_CA_BUNDLE" "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH" }}
- name: {{ . }}
  value: {{ $trust }}/bundle.pem
{{- end }}
- name: NODE_EXTRA_CA_CERTS
  value: {{ $trust }}/cert.pem
{{- if .Values.intercept.java }}
- name: JAVA_TOOL_OPTIONS
  value: >-
    -Dhttp.proxyHost={{ $host }} -Dhttp.proxyPort={{ $port }}
    -Dhttps.proxyHost={{ $host }} -Dhttps.proxyPort={{ $port }}
    -Dhttp.nonProxyHosts={{ include "redrive.javaNoProxy" . }}
    -Djavax.net.ssl.trustStore={{ $trust }}/truststore.p12
    -Djavax.net.ssl.trustStoreType=PKCS12 -Djavax.net.ssl.trustStorePassword=changeit
{{- end }}
{{- end }}
{{- end }}

{{/* noProxy as Java writes it: bars, brackets around IPv6, a star before a suffix. */}}
{{- define "redrive.javaNoProxy" -}}
{{- $hosts := list }}
{{- range splitList "," .Values.noProxy }}
{{- $host := trim . }}
{{- if hasPrefix "." $host }}{{ $host = printf "*%s" $host }}{{ else if contains ":" $host }}{{ $host = printf "[%s]" $host }}{{ end }}
{{- $hosts = append $hosts $host }}
{{- end }}
{{- join "|" $hosts }}
{{- end }}
