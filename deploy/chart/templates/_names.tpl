{{- define "lango.labels" -}}
app.kubernetes.io/name: lango
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "lango.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- end }}

{{- define "lango.environment" -}}
envFrom:
  - secretRef:
      name: {{ .Values.secretName }}
env:
  - name: LANGO_CONFIG
    value: /etc/lango/lango.toml
  - name: LANGO_SERVER__HOST
    value: 0.0.0.0
  - name: LANGO_SERVER__PORT
    value: "8787"
  - name: LANGO_SERVER__DRAIN_S
    value: {{ .Values.shutdownSeconds | quote }}
  - name: LANGO_SERVER__LIMITS__MAX_CONNECTIONS_PER_CLIENT
    value: "0"
  - name: LANGO_SERVER__ALLOWED_HOSTS
    value: {{ .Values.allowedHosts | toJson | quote }}
volumeMounts:
  - {name: config, mountPath: /etc/lango, readOnly: true}
  - {name: data, mountPath: /data}
  - {name: tmp, mountPath: /tmp}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: ["ALL"]
{{- end }}

{{- define "lango.pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
volumes:
  - name: config
    configMap:
      name: {{ .Release.Name }}
  - name: data
    emptyDir: {}
  - name: tmp
    emptyDir: {}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
