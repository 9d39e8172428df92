{{- define "offloader.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 45 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "offloader.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "offloader.labels" -}}
{{ include "offloader.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "offloader.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "offloader.name" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "offloader.metricsPort" -}}
{{- $port := dig "metrics" "port" 9464 .Values.config | int -}}
{{- if eq $port 0 -}}{{- fail "config.metrics.port must be a port: the probes ask there" -}}{{- end -}}
{{- if has (dig "metrics" "host" "127.0.0.1" .Values.config) (list "127.0.0.1" "::1" "localhost") -}}
{{- fail "config.metrics.host must not be loopback: the probes come from outside of the pod; write 0.0.0.0" -}}
{{- end -}}
{{- $port -}}
{{- end -}}

{{- define "offloader.portOf" -}}
{{- regexFind "[0-9]+$" . -}}
{{- end -}}

{{- /* What the pods of both have in common. */ -}}
{{- define "offloader.podMeta" -}}
annotations:
  checksum/config: {{ .Values.config | toYaml | sha256sum }}
  {{- with .Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "offloader.podSpec" -}}
serviceAccountName: {{ include "offloader.serviceAccount" . }}
automountServiceAccountToken: {{ .Values.serviceAccount.automountToken }}
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
volumes:
  - name: configuration
    projected:
      sources:
        - configMap:
            name: {{ include "offloader.name" . }}
        {{- with .Values.secrets.files }}
        - secret:
            name: {{ . }}
        {{- end }}
  - name: scratch
    emptyDir:
      sizeLimit: {{ .Values.scratch }}
  - name: home
    emptyDir:
      sizeLimit: 1Gi
{{- end -}}

{{- define "offloader.container" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
volumeMounts:
  - name: configuration
    mountPath: /etc/offloader
    readOnly: true
  - name: scratch
    mountPath: /tmp
  - name: home
    mountPath: /var/lib/offloader
{{- with .Values.secrets.environment }}
envFrom:
  - secretRef:
      name: {{ . }}
{{- end }}
{{- end -}}

{{- define "offloader.environment" -}}
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- range $name, $value := .Values.environment }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}
