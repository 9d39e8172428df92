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
{{- $metrics := .Values.config.metrics | default dict -}}
{{- $port := dig "port" 9464 $metrics | int -}}
{{- if eq $port 0 -}}{{- fail "config.metrics.port must be a port: the probes ask there" -}}{{- end -}}
{{- if regexMatch "^(127\\.|::1$|localhost$)" (dig "host" "127.0.0.1" $metrics) -}}
{{- fail "config.metrics.host must not be loopback: the probes come from outside of the pod; write 0.0.0.0" -}}
{{- end -}}
{{- $port -}}
{{- end -}}

{{- /* An address that is listened on, of a setting: other pods must reach it. */ -}}
{{- define "offloader.reached" -}}
{{- $port := regexFind "[0-9]+$" .listen -}}
{{- if or (not $port) (eq (int $port) 0) -}}
{{- fail (printf "%s is %s, which names no port; write for example 0.0.0.0:6650" .setting .listen) -}}
{{- end -}}
{{- if regexMatch "^(127\\.|localhost:|\\[::1\\])" .listen -}}
{{- fail (printf "%s is %s, which nobody outside of the pod reaches; write 0.0.0.0:%s" .setting .listen $port) -}}
{{- end -}}
{{- end -}}

{{- /* The ConfigMap is no place for them. */ -}}
{{- define "offloader.noSecrets" -}}
{{- $told := "%s stands in config as it is, which becomes a ConfigMap; write ${NAME} of secrets.environment, or file:///etc/offloader/NAME of secrets.files" -}}
{{- $secrets := dict "config.pulsar.authParams" (.Values.config.pulsar).authParams "config.metrics.pageToken" (.Values.config.metrics).pageToken "config.gateway.tokenSecretKey" (.Values.config.gateway).tokenSecretKey -}}
{{- range $name, $value := (.Values.config.storage).options -}}
{{- if regexMatch "(?i)secret|token|password|account_key|sas_" $name -}}
{{- $_ := set $secrets (printf "config.storage.options.%s" $name) $value -}}
{{- end -}}
{{- end -}}
{{- range $name, $value := $secrets -}}
{{- if and $value (not (regexMatch "\\$\\{|^file:|^/" (toString $value))) -}}{{- fail (printf $told $name) -}}{{- end -}}
{{- end -}}
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
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
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
