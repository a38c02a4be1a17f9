// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// cluster is a control plane and a node. Pods use the node's network, so all programs listen on
// loopback.
type cluster struct {
	dir, programs string
	etcd, api     string // addresses
	kubelet       string
	containerd    string // socket
	kubeconfig    string
	client        http.Client
}

const (
	nodeName     = "node-of-the-test"
	energySpace  = "energy"
	workSpace    = "work"
	webPod       = "web-5d4f8c7b9d-x7k2p" // named like a pod of a Deployment
	imageTag     = "otelcol-energy:0.1.0-dev"
	adminToken   = "admin"
	kubeletToken = "kubelet"
)

// kubernetesLoad is a container with a given load, and its CPU time by the node.
type kubernetesLoad struct {
	pod, container, load string

	id        string
	byKubelet float64 // seconds of CPU time
}

// A real API server accepts the shipped manifests. Their pod on a real kubelet measures the node's
// workloads and sends their energy and names.
func TestKubernetesDaemonSet(t *testing.T) {
	need(t)
	programs := kubernetesPrograms(t)
	image := writeImage(t)
	k := startCluster(t, programs)

	k.kubectl(t, "", "create", "namespace", workSpace)
	k.importImage(t, image)
	k.importImage(t, loadImage(t))
	k.startNode(t)

	// The manifests are shipped unchanged. A namespace must exist before its objects are accepted.
	k.kubectl(t, "", "apply", "-f", shipped(t, "kubernetes", "namespace.yaml"))
	said := k.kubectl(t, "", "apply", "--dry-run=server", "-k", shipped(t, "kubernetes"))
	assert.Contains(t, said, "daemonset.apps/otelcol-energy created (server dry run)")
	assert.NotContains(t, said, "Warning")

	gateway := startGateway(t)
	adapted := k.adapt(t, gateway.endpoint)
	k.write(t, "adapted/all.yaml", k.kubectl(t, "", "kustomize", shipped(t, "kubernetes")))
	k.kubectl(t, "", "apply", "-k", adapted)
	daemonPod := k.waitRollout(t)
	loads := []*kubernetesLoad{
		{pod: webPod, container: "front", load: "burn 30 3"},
		{pod: webPod, container: "back", load: "burn 10 1"},
		{pod: "forks", container: "forks", load: "fork 1"},
	}
	gateway.waitFor(t, "the collector emits", func(all []emission) bool { return len(all) > 0 })
	k.startLoads(t, loads)
	for _, l := range loads {
		l.waitDone(t, k)
	}
	t.Run("grants", func(t *testing.T) { k.testGrants(t, daemonPod) })

	done := time.Now()
	for _, l := range loads {
		k.countByKubelet(t, l, done)
	}
	gateway.waitFor(t, "the loads' final values", func(all []emission) bool {
		return len(all) > 0 && all[len(all)-1].at().After(done.Add(2*time.Second))
	})
	emissions := gateway.emissions(t)
	log := k.podLog(t, energySpace, daemonPod, "otelcol-energy")
	require.NoError(t, os.WriteFile(filepath.Join(cache(t), "kubernetes", "collector.log"), []byte(log), 0o600))
	t.Logf("CPU times: %s", regexp.MustCompile(`"source": "[^"]*"(, "rejected": "[^"]*")?`).FindString(log))
	assert.NotContains(t, log, "forbidden", "requests that the API server refused")
	requireBalance(t, emissions, "package")

	for _, l := range loads {
		got := total(emissions, "container.cpu.time", "container.id="+l.id)
		t.Logf("%s/%s (%s): kubelet %.4f s, reported %.4f s (%+.2f %%), %.3f J", l.pod, l.container, l.load, l.byKubelet, got,
			100*(got/l.byKubelet-1), total(emissions, "container.energy", "container.id="+l.id))
		assert.InDelta(t, l.byKubelet, got, 0.02*l.byKubelet+0.03, "%s/%s", l.pod, l.container)
	}
	testNames(t, emissions, loads, k.podUIDs(t), daemonPod)
	var members []member
	for _, l := range loads {
		members = append(members, member{"container.cpu.time", "container.energy", "container.id=" + l.id})
	}
	requireSameRate(t, emissions, members)
}

// testNames checks that every point of a pod, from the first one on, has the names of the API
// server, that a container has its own name, and that every point has the node's name.
func testNames(t *testing.T, emissions []emission, loads []*kubernetesLoad, podUIDs []string, daemonPod string) {
	t.Helper()
	containers, pods, processes := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, e := range emissions {
		for _, p := range e {
			require.Equal(t, nodeName, p.attributes["k8s.node.name"], "%s %v", p.metric, p.attributes)
			require.Equal(t, nodeName, p.attributes["host.name"], "%s %v", p.metric, p.attributes)
			if !slices.Contains(podUIDs, p.attributes["k8s.pod.uid"]) {
				continue // unattributed, or another pod of this machine
			}
			pod := p.attributes["k8s.pod.name"]
			i := slices.IndexFunc(loads, func(l *kubernetesLoad) bool { return l.id == p.attributes["container.id"] })
			if i >= 0 && strings.HasPrefix(p.metric, "container.") {
				require.Equal(t, loads[i].container, p.attributes["k8s.container.name"], "%s %v", p.metric, p.attributes)
			} else if i >= 0 || p.metric == "k8s.pod.energy" {
				require.NotContains(t, p.attributes, "k8s.container.name", "%s %v", p.metric, p.attributes)
			}
			if i >= 0 {
				require.Equal(t, loads[i].pod, pod, "%s %v", p.metric, p.attributes)
			}
			switch p.attributes["k8s.namespace.name"] {
			case workSpace:
				require.Contains(t, []string{webPod, "forks"}, pod)
				if pod == webPod {
					require.Equal(t, "web", p.attributes["k8s.deployment.name"], "%s %v", p.metric, p.attributes)
				}
			case energySpace:
				require.Equal(t, "otelcol-energy", p.attributes["k8s.daemonset.name"], "%s %v", p.metric, p.attributes)
			default:
				require.Failf(t, "a pod without its names", "%s %v", p.metric, p.attributes)
			}
			switch p.metric {
			case "k8s.pod.energy":
				pods[pod] = true
			case "container.energy":
				if i >= 0 {
					containers[loads[i].container] = true
				}
			case "process.energy":
				if i >= 0 {
					// Children of other pods may end before their executable is read. Before runc
					// executes the container's program, runc runs from a detached mount with the
					// path "/".
					if pod == webPod && p.attributes["process.executable.path"] != "/" {
						require.Equal(t, "/load", p.attributes["process.executable.path"], "readable with CAP_SYS_PTRACE")
					}
					processes[loads[i].container] = true
				}
			}
		}
	}
	assert.Equal(t, map[string]bool{"front": true, "back": true, "forks": true}, containers)
	assert.Equal(t, map[string]bool{"front": true, "back": true, "forks": true}, processes)
	assert.Equal(t, map[string]bool{webPod: true, "forks": true, daemonPod: true}, pods)
}

// kubernetesPrograms is the directory where `make integration RUN=Kubernetes` builds the programs.
func kubernetesPrograms(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(cache(t), "kubernetes", "bin")
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Skipf("lacks %s: make integration RUN=Kubernetes", filepath.Join(dir, name))
		}
	}
	program(t, "etcd", "etcd-server")
	program(t, "containerd", "containerd")
	program(t, "ctr", "containerd")
	program(t, "runc", "runc")
	return dir
}

// writeImage returns the path of the image of the collector, in the format of `docker save`.
func writeImage(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(cache(t), "kubernetes", "image.tar")
	cmd := exec.Command("go", "-C", filepath.Join(checkout, "dev/release"), "run", "./image",
		"-program", kubernetesBinary(t), "-tag", imageTag, "-out", path)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	run(t, cmd)
	return path
}

// loadImage returns an image with only the load program, in the format of `docker save`.
func loadImage(t *testing.T) (path string) {
	t.Helper()
	content, err := os.ReadFile(build(t, "load"))
	require.NoError(t, err)
	archive := func(files ...[2]string) string {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for _, f := range files {
			require.NoError(t, w.WriteHeader(&tar.Header{Name: f[0], Mode: 0o755, Size: int64(len(f[1]))}))
			_, err := io.WriteString(w, f[1])
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
		return out.String()
	}
	layer := archive([2]string{"load", string(content)})
	sum := sha256.Sum256([]byte(layer))
	config := fmt.Sprintf(`{"architecture":"amd64","os":"linux","config":{"Entrypoint":["/load"],"Cmd":["burn","1","0.001"]},`+
		`"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}`, hex.EncodeToString(sum[:]))
	path = filepath.Join(t.TempDir(), "load.tar")
	require.NoError(t, os.WriteFile(path, []byte(archive(
		[2]string{"config.json", config}, [2]string{"layer.tar", layer},
		[2]string{"manifest.json", `[{"Config":"config.json","RepoTags":["load:1"],"Layers":["layer.tar"]}]`},
	)), 0o600))
	return path
}

// freePort returns an unused port on loopback.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// startCluster starts etcd, an API server, the scheduler, the controllers that the tests need and
// containerd.
func startCluster(t *testing.T, programs string) *cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "k8s-") // short: the length of a socket's path is limited
	require.NoError(t, err)
	k := &cluster{
		dir: dir, programs: programs, etcd: "127.0.0.1:" + freePort(t), api: "127.0.0.1:" + freePort(t),
		kubelet: "127.0.0.1:" + freePort(t), containerd: filepath.Join(dir, "containerd.sock"),
		kubeconfig: filepath.Join(dir, "admin.kubeconfig"),
	}
	before := cgroupDirs(t)
	t.Cleanup(func() {
		removeCgroups(t, before)
		unmountBelow(t, dir)
		assert.NoError(t, os.RemoveAll(dir))
	})

	key := k.certificates(t)
	k.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: key}}
	k.writeKubeconfig(t, k.kubeconfig, adminToken)
	k.write(t, "tokens.csv", adminToken+",admin,admin,system:masters\n"+
		kubeletToken+",system:node:"+nodeName+",kubelet,system:nodes\n")

	peer := "http://127.0.0.1:" + freePort(t)
	k.daemon(t, "etcd", "etcd", "--data-dir="+k.path("etcd"), "--listen-client-urls=http://"+k.etcd, "--advertise-client-urls=http://"+k.etcd,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	_, port, _ := net.SplitHostPort(k.api)
	ended := k.daemon(t, "kube-apiserver", filepath.Join(programs, "kube-apiserver"), "--etcd-servers=http://"+k.etcd,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none", "--secure-port="+port,
		"--tls-cert-file="+k.path("tls.crt"), "--tls-private-key-file="+k.path("tls.key"), "--token-auth-file="+k.path("tokens.csv"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--service-cluster-ip-range=10.96.0.0/24",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-signing-key-file="+k.path("tls.key"),
		"--service-account-key-file="+k.path("tls.key"))
	eventually(t, "the API server is ready", func() bool {
		select {
		case <-ended:
			t.Fatalf("the API server ended: %s", lastLine(k.log("kube-apiserver")))
		default:
		}
		return exec.Command(filepath.Join(programs, "kubectl"), "--kubeconfig="+k.kubeconfig, "get", "--raw=/readyz").Run() == nil
	})
	k.daemon(t, "kube-controller-manager", filepath.Join(programs, "kube-controller-manager"), "--kubeconfig="+k.kubeconfig,
		"--controllers=daemonset-controller,serviceaccount-controller,root-ca-certificate-publisher-controller",
		"--root-ca-file="+k.path("tls.crt"), "--leader-elect=false", "--secure-port=0")
	k.daemon(t, "kube-scheduler", filepath.Join(programs, "kube-scheduler"), "--kubeconfig="+k.kubeconfig, "--leader-elect=false", "--secure-port=0")

	k.write(t, "containerd.toml", strings.NewReplacer("DIR", dir).Replace(`
version = 2
root = "DIR/containerd"
state = "DIR/containerd-state"
[grpc]
  address = "DIR/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "DIR/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/load:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = "DIR/cni"
`))
	k.daemon(t, "containerd", "containerd", "--config="+k.path("containerd.toml"))
	eventually(t, "containerd answers", func() bool {
		return exec.Command("ctr", "--address="+k.containerd, "version").Run() == nil
	})
	t.Cleanup(func() { // before containerd ends, so that no sandbox is left
		k.endPods(t)
	})
	return k
}

func (k *cluster) path(name string) string { return filepath.Join(k.dir, name) }

func (k *cluster) log(name string) string {
	return filepath.Join(filepath.Dir(k.programs), name+".log")
}

func (k *cluster) write(t *testing.T, name, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(k.path(name), []byte(content), 0o600))
}

func (k *cluster) daemon(t *testing.T, name, program string, args ...string) (ended <-chan struct{}) {
	t.Helper()
	return startDaemon(t, exec.Command(program, args...), k.log(name))
}

// certificates writes the API server's self-signed certificate, and returns a pool that trusts it.
func (k *cluster) certificates(t *testing.T) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	secret, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	k.write(t, "tls.crt", string(certificate))
	k.write(t, "tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})))
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(certificate))
	return pool
}

func (k *cluster) writeKubeconfig(t *testing.T, path, token string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(fmt.Sprintf(`
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://%s", certificate-authority: %s}}]
users: [{name: u, user: {token: %s}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, k.api, k.path("tls.crt"), token)), 0o600))
}

// kubectl runs a command with an object as its standard input.
func (k *cluster) kubectl(t *testing.T, input string, args ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(k.programs, "kubectl"), append([]string{"--kubeconfig=" + k.kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	return run(t, cmd)
}

func (k *cluster) importImage(t *testing.T, path string) {
	t.Helper()
	run(t, exec.Command("ctr", "--address="+k.containerd, "--namespace=k8s.io", "images", "import", path))
}

// kubeletSets lists the machine's settings that the kubelet changes.
var kubeletSets = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// startNode starts a kubelet and waits until its node is registered.
func (k *cluster) startNode(t *testing.T) {
	t.Helper()
	for _, name := range kubeletSets {
		path := filepath.Join("/proc/sys", name)
		before, err := os.ReadFile(path)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, os.WriteFile(path, before, 0o644)) })
	}
	t.Cleanup(func() { removeLogLinks(t, k.dir) })
	kubeconfig := k.path("kubelet.kubeconfig")
	k.writeKubeconfig(t, kubeconfig, kubeletToken)
	_, port, _ := net.SplitHostPort(k.kubelet)
	k.write(t, "kubelet.yaml", strings.NewReplacer("DIR", k.dir, "PORT", port, "SOCKET", k.containerd).Replace(`
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
port: PORT
healthzPort: 0
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix://SOCKET
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
makeIPTablesUtilChains: false
podLogsDir: DIR/logs
volumePluginDir: DIR/plugins
resolvConf: ""
evictionHard: {memory.available: "1Mi", nodefs.available: "0%", imagefs.available: "0%"}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
syncFrequency: 1s
`))
	ended := k.daemon(t, "kubelet", filepath.Join(k.programs, "kubelet"), "--config="+k.path("kubelet.yaml"), "--kubeconfig="+kubeconfig,
		"--root-dir="+k.path("kubelet"), "--cert-dir="+k.path("pki"), "--hostname-override="+nodeName)
	eventually(t, "the node is registered", func() bool {
		select {
		case <-ended:
			t.Skipf("lacks a machine that the kubelet runs on: %s", lastLine(k.log("kubelet")))
		default:
		}
		return exec.Command(filepath.Join(k.programs, "kubectl"), "--kubeconfig="+k.kubeconfig, "get", "node", nodeName).Run() == nil
	})
	t.Cleanup(func() { // while the kubelet still removes their mounts and cgroups
		cmd := exec.Command(filepath.Join(k.programs, "kubectl"), "--kubeconfig="+k.kubeconfig, "delete", "pods", "--all", "--all-namespaces",
			"--grace-period=1", "--timeout=60s")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Logf("%s: %v %s", cmd, err, out)
		}
	})
}

// removeLogLinks removes the kubelet's links to logs. Their directory cannot be configured.
func removeLogLinks(t *testing.T, to string) {
	t.Helper()
	const dir = "/var/log/containers"
	entries, err := os.ReadDir(dir)
	if err != nil {
		require.ErrorIs(t, err, os.ErrNotExist)
		return
	}
	for _, e := range entries {
		link := filepath.Join(dir, e.Name())
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, to+"/") {
			assert.NoError(t, os.Remove(link))
		}
	}
	_ = os.Remove(dir) // unless another program uses it
}

// endPods ends the containers that the kubelet has left.
func (k *cluster) endPods(t *testing.T) {
	t.Helper()
	ctr := func(args ...string) string {
		out, err := exec.Command("ctr", append([]string{"--address=" + k.containerd, "--namespace=k8s.io"}, args...)...).CombinedOutput()
		if err != nil {
			t.Logf("ctr %v: %v %s", args, err, out)
		}
		return string(out)
	}
	for _, id := range strings.Fields(ctr("tasks", "ls", "-q")) {
		ctr("tasks", "delete", "--force", id)
	}
	for _, id := range strings.Fields(ctr("containers", "ls", "-q")) {
		ctr("containers", "delete", id)
	}
}

type object = map[string]any

// adapt writes a kustomization that adapts the DaemonSet in all.yaml to this cluster, without a pod
// network and a sensor, and returns its directory.
func (k *cluster) adapt(t *testing.T, endpoint string) (dir string) {
	t.Helper()
	health := freePort(t)
	apiHost, apiPort, _ := net.SplitHostPort(k.api)
	probe := object{"httpGet": object{"host": "127.0.0.1"}}
	patch := object{"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": object{"name": "otelcol-energy"}}
	patch["spec"] = object{"template": object{"spec": object{
		"hostNetwork": true,
		"volumes": []object{
			// podLogsDir of this kubelet.
			{"name": "var-log-pods", "hostPath": object{"path": k.path("logs")}},
			{"name": "state", "hostPath": object{"path": t.TempDir()}},
		},
		"containers": []object{{
			"name": "otelcol-energy", "startupProbe": probe, "livenessProbe": probe,
			"ports": []object{{"$patch": "replace"}, {"name": "health", "containerPort": json.Number(health)}},
			"env": []object{
				{"name": "OTLP_ENDPOINT", "value": endpoint},
				{"name": "OTLP_INSECURE", "value": "true"},
				{"name": "KUBERNETES_SERVICE_HOST", "value": apiHost},
				{"name": "KUBERNETES_SERVICE_PORT", "value": apiPort},
			},
			"args": []string{"--config", "/etc/otelcol-energy/config.yaml", "--config", `yaml:
receivers:
  energy:
    collection_interval: 1s
    initial_delay: 0s
    meters: {use: []}
    model: {idle_power: 100, max_power: 100}
    zones: [package]
    attribution: {preset: kepler}
    series: {processes: {group_by: pid, min_energy: 0, max: 0}}
    metrics: {container.cpu.time: {enabled: true}}
extensions:
  health_check: {endpoint: "127.0.0.1:` + health + `"}
`},
		}},
	}}}
	text, err := json.Marshal(patch)
	require.NoError(t, err)
	kustomization, err := json.Marshal(object{
		"resources": []string{"all.yaml"},
		"patches":   []object{{"patch": string(text), "target": object{"kind": "DaemonSet"}}},
	})
	require.NoError(t, err)
	dir = k.path("adapted")
	require.NoError(t, os.Mkdir(dir, 0o700))
	k.write(t, "adapted/kustomization.yaml", string(kustomization))
	return dir
}

// waitRollout waits until the DaemonSet's controller has updated its pod, and returns the pod's
// name.
func (k *cluster) waitRollout(t *testing.T) (pod string) {
	t.Helper()
	k.kubectl(t, "", "--namespace="+energySpace, "rollout", "status", "daemonset/otelcol-energy", "--timeout=2m")
	pods := strings.Fields(k.kubectl(t, "", "--namespace="+energySpace, "get", "pods", "--selector=app.kubernetes.io/name=otelcol-energy",
		"--field-selector=status.phase=Running", "-o", "jsonpath={.items[*].metadata.name}"))
	require.Len(t, pods, 1)
	return pods[0]
}

func (k *cluster) create(t *testing.T, o object) {
	t.Helper()
	text, err := json.Marshal(o)
	require.NoError(t, err)
	k.kubectl(t, string(text), "create", "-f", "-")
}

// podUIDs returns the UIDs of all pods of the API server.
func (k *cluster) podUIDs(t *testing.T) []string {
	t.Helper()
	uids := strings.Fields(k.kubectl(t, "", "get", "pods", "--all-namespaces", "-o", "jsonpath={.items[*].metadata.uid}"))
	require.Len(t, uids, 3)
	return uids
}

type podStatus struct {
	Phase             string
	ContainerStatuses []struct {
		Name, ContainerID string
		Ready             bool
		RestartCount      int
		State             object
	}
}

func (k *cluster) status(t *testing.T, namespace, name string) (s podStatus) {
	t.Helper()
	var pod struct{ Status podStatus }
	require.NoError(t, json.Unmarshal([]byte(k.kubectl(t, "", "--namespace="+namespace, "get", "pod", name, "-o", "json")), &pod))
	return pod.Status
}

func (k *cluster) waitRunning(t *testing.T, namespace, name string) {
	t.Helper()
	var last podStatus
	defer func() {
		if t.Failed() {
			t.Logf("%+v\n%s", last, k.podLog(t, namespace, name, ""))
		}
	}()
	eventually(t, name+" runs", func() bool {
		last = k.status(t, namespace, name)
		ready := len(last.ContainerStatuses) > 0
		for _, c := range last.ContainerStatuses {
			require.Zerof(t, c.RestartCount, "%s ended: %v", c.Name, c.State)
			ready = ready && c.Ready
		}
		return ready
	})
}

// startLoads starts a pod for each name. A pod with a name like a Deployment's gets a ReplicaSet as
// its owner.
func (k *cluster) startLoads(t *testing.T, loads []*kubernetesLoad) {
	t.Helper()
	containers := map[string][]any{}
	for _, l := range loads {
		var args []any
		for _, a := range strings.Fields(l.load) {
			args = append(args, a)
		}
		containers[l.pod] = append(containers[l.pod], object{
			"name": l.container, "image": "load:1", "imagePullPolicy": "Never", "args": args,
			"resources": object{"requests": object{"cpu": "10m"}},
		})
	}
	for name, list := range containers {
		meta := object{"name": name, "namespace": workSpace}
		if set := regexp.MustCompile(`^(\w+-[0-9a-z]{10})-\w{5}$`).FindStringSubmatch(name); set != nil {
			meta["labels"] = object{"pod-template-hash": strings.Split(set[1], "-")[1]}
			meta["ownerReferences"] = []any{object{
				"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set[1], "uid": "2f6b1c0e-7d54-4c93-a1de-90b7f3e8c512", "controller": true,
			}}
		}
		k.create(t, object{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": object{
			"nodeName": nodeName, "hostNetwork": true, "automountServiceAccountToken": false, "containers": list,
		}})
	}
	for name := range containers {
		k.waitRunning(t, workSpace, name)
	}
	for _, l := range loads {
		for _, c := range k.status(t, workSpace, l.pod).ContainerStatuses {
			if c.Name == l.container {
				_, l.id, _ = strings.Cut(c.ContainerID, "://")
			}
		}
		require.Len(t, l.id, 64)
	}
}

// podLog returns the log of a pod's container, or the logs of all its containers if container is
// empty.
func (k *cluster) podLog(t *testing.T, namespace, pod, container string) string {
	t.Helper()
	var all strings.Builder
	_ = filepath.WalkDir(k.path("logs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(path, "/"+namespace+"_"+pod+"_") && strings.Contains(path, "/"+container) {
			all.WriteString(fileText(t, path))
		}
		return nil // not created yet
	})
	return all.String()
}

func (l *kubernetesLoad) waitDone(t *testing.T, k *cluster) {
	t.Helper()
	eventually(t, l.container+" is done", func() bool {
		return strings.Contains(k.podLog(t, workSpace, l.pod, l.container+"/"), "done")
	})
}

// countByKubelet reads the CPU time of a container from the kubelet's cAdvisor, as of a time after
// the load was done.
func (k *cluster) countByKubelet(t *testing.T, l *kubernetesLoad, done time.Time) {
	t.Helper()
	// The kubelet's certificate is self-signed.
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	// cAdvisor here identifies containers by their cgroups. For names it would query a containerd
	// at the default address.
	line := regexp.MustCompile(`(?m)^container_cpu_usage_seconds_total\{.*id="/kubepods/[^"]*/` + l.id + `".*\} (\S+) (\d+)$`)
	eventually(t, "the kubelet has counted "+l.container, func() bool {
		request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "https://"+k.kubelet+"/metrics/cadvisor", nil)
		require.NoError(t, err)
		answer, err := client.Do(request)
		require.NoError(t, err)
		defer func() { _ = answer.Body.Close() }()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		found := line.FindSubmatch(text)
		if found == nil {
			return false
		}
		ms, err := strconv.ParseInt(string(found[2]), 10, 64)
		require.NoError(t, err)
		l.byKubelet, err = strconv.ParseFloat(string(found[1]), 64)
		require.NoError(t, err)
		return time.UnixMilli(ms).After(done)
	})
}

// testGrants checks that the collector has exactly the privileges that its manifest grants.
func (k *cluster) testGrants(t *testing.T, daemonPod string) {
	var pid string
	_, id, _ := strings.Cut(k.status(t, energySpace, daemonPod).ContainerStatuses[0].ContainerID, "://")
	for line := range strings.Lines(run(t, exec.Command("ctr", "--address="+k.containerd, "--namespace=k8s.io", "tasks", "ls"))) {
		if f := strings.Fields(line); f[0] == id {
			pid = f[1]
		}
	}
	require.NotEmpty(t, pid)
	status := map[string]string{}
	for line := range strings.Lines(fileText(t, "/proc/"+pid+"/status")) {
		key, value, _ := strings.Cut(line, ":")
		status[key] = strings.TrimSpace(value)
	}
	t.Logf("the collector's memory: %s, at most %s", status["VmRSS"], status["VmHWM"])
	granted := fmt.Sprintf("%016x", 1<<unix.CAP_SYS_PTRACE|1<<unix.CAP_BPF|1<<unix.CAP_PERFMON)
	for _, set := range []string{"CapEff", "CapPrm", "CapBnd"} {
		assert.Equal(t, granted, status[set], set)
	}
	assert.Equal(t, "0000000000000000", status["CapAmb"])
	assert.Equal(t, "1", status["NoNewPrivs"])
	assert.Equal(t, "2", status["Seccomp"], "a filter")
	assert.Equal(t, "0\t0\t0\t0", status["Uid"])
	of := map[string]string{}
	for line := range strings.Lines(fileText(t, "/proc/"+pid+"/mountinfo")) {
		f := strings.Fields(line)
		of[f[4]] = f[5]
	}
	for _, dir := range []string{"/", "/hostfs/proc", "/hostfs/sys/bus", "/hostfs/sys/class", "/hostfs/sys/devices", "/hostfs/sys/fs/cgroup",
		"/hostfs/var/log/pods", "/hostfs/var/log/containers", "/etc/otelcol-energy"} {
		assert.Contains(t, strings.Split(of[dir], ","), "ro", dir)
	}
}

// gateway receives the metrics of the DaemonSet's collectors.
type gateway struct {
	endpoint, out string
}

// startGateway starts a collector that writes everything it receives to a file.
func startGateway(t *testing.T) *gateway {
	t.Helper()
	dir := filepath.Join(cache(t), "kubernetes")
	g := &gateway{endpoint: "127.0.0.1:" + freePort(t), out: filepath.Join(dir, "gateway.json")}
	if err := os.Remove(g.out); err != nil {
		require.ErrorIs(t, err, os.ErrNotExist)
	}
	config := filepath.Join(t.TempDir(), "gateway.yaml")
	require.NoError(t, os.WriteFile(config, []byte(strings.NewReplacer("ENDPOINT", g.endpoint, "OUT", g.out).Replace(`
receivers:
  otlp: {protocols: {grpc: {endpoint: "ENDPOINT"}}}
exporters:
  file: {path: OUT, flush_interval: 100ms}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    metrics: {receivers: [otlp], exporters: [file]}
`)), 0o600))
	startDaemon(t, exec.Command(collectorBinary(t), "--config", config), filepath.Join(dir, "gateway.log"))
	eventually(t, "the gateway listens", func() bool {
		c, err := net.Dial("tcp", g.endpoint)
		return err == nil && c.Close() == nil
	})
	return g
}

func (g *gateway) emissions(t *testing.T) []emission {
	t.Helper()
	if _, err := os.Stat(g.out); err != nil {
		return nil
	}
	return readEmissions(t, g.out)
}

func (g *gateway) waitFor(t *testing.T, what string, holds func([]emission) bool) {
	t.Helper()
	eventually(t, what, func() bool { return holds(g.emissions(t)) })
}
