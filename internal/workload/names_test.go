// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/test/allocs"
)

// nameHost is a host with files that name containers.
type nameHost struct {
	t    testing.TB
	root string
	now  time.Time
	*Names
}

func newNameHost(t testing.TB, sources ...NameSource) *nameHost {
	h := &nameHost{t: t, root: t.TempDir(), now: time.Unix(1000, 0)}
	if len(sources) == 0 {
		sources = NameSources
	}
	h.Names = NewNames(NamesOptions{Root: h.root, Sources: sources, Pods: NewPodLogs(filepath.Join(h.root, "var/log/pods"))})
	h.scan(0)
	return h
}

// scan begins a scan after a time.
func (h *nameHost) scan(after time.Duration) {
	h.now = h.now.Add(after)
	h.begin(h.now)
}

func (h *nameHost) write(path, text string) {
	h.t.Helper()
	path = filepath.Join(h.root, path)
	require.NoError(h.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(h.t, os.WriteFile(path, []byte(text), 0o600))
}

// link makes the link to the log of a container of the pod uidA, whose name is web.
func (h *nameHost) link(container, id string) {
	h.t.Helper()
	dir := filepath.Join(h.root, "var/log/containers")
	require.NoError(h.t, os.MkdirAll(dir, 0o755))
	require.NoError(h.t, os.Symlink("/var/log/pods/shop_web_"+uidA+"/"+container+"/0.log",
		filepath.Join(dir, "web_shop_"+container+"-"+id+".log")))
}

func (h *nameHost) mkdir(paths ...string) {
	h.t.Helper()
	for _, path := range paths {
		require.NoError(h.t, os.MkdirAll(filepath.Join(h.root, path), 0o755))
	}
}

// inPod is a container of the pod uidA.
func inPod(id, runtime string) *Placement {
	return &Placement{Workload: identity.Workload{Container: identity.Container{ID: id, Runtime: runtime}, Pod: identity.Pod{UID: uidA}}}
}

func alone(id, runtime string) *Placement {
	return &Placement{Workload: identity.Workload{Container: identity.Container{ID: id, Runtime: runtime}}}
}

const bundles = "run/containerd/io.containerd.runtime.v2.task/"

// The files have the fields that the runtimes document, among others.
func TestEachSourceTellsItsNames(t *testing.T) {
	for name, c := range map[string]struct {
		path, text string
		in         *Placement
		want       identity.Names
	}{
		"containerd's CRI plugin": {
			bundles + "k8s.io/" + hexA + "/config.json",
			`{"ociVersion":"1.2.1","process":{"env":["annotations={"]},"annotations":{
			 "io.kubernetes.cri.container-type":"container","io.kubernetes.cri.container-name":"app",
			 "io.kubernetes.cri.image-name":"registry.example:5000/shop/web:1.27@sha256:` + hexB + `",
			 "io.kubernetes.cri.sandbox-name":"web","io.kubernetes.cri.sandbox-namespace":"shop","io.kubernetes.cri.sandbox-uid":"` + uidA + `"}}`,
			inPod(hexA, "containerd"),
			identity.Names{Namespace: "shop", Pod: "web", KubernetesContainer: "app", Image: "registry.example:5000/shop/web"},
		},
		"containerd's sandbox": {
			bundles + "k8s.io/" + hexA + "/config.json",
			`{"annotations":{"io.kubernetes.cri.container-type":"sandbox","io.kubernetes.cri.sandbox-name":"web","io.kubernetes.cri.sandbox-namespace":"shop"}}`,
			inPod(hexA, "containerd"), identity.Names{Namespace: "shop", Pod: "web"},
		},
		"k3s, with the kubelet's cgroupfs driver": {
			"run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/" + hexA + "/config.json",
			`{"annotations":{"io.kubernetes.cri.container-name":"app","io.kubernetes.cri.sandbox-name":"web","io.kubernetes.cri.sandbox-namespace":"shop"}}`,
			inPod(hexA, ""), identity.Names{Namespace: "shop", Pod: "web", KubernetesContainer: "app"},
		},
		"nerdctl": {
			bundles + "default/" + hexA + "/config.json", `{"annotations":{"nerdctl/name":"web","nerdctl/namespace":"default"}}`,
			alone(hexA, "containerd"), identity.Names{Container: "web"},
		},
		"ctr": {
			bundles + "default/web/config.json", `{"annotations":{"nerdctl/name":"x"}}`,
			alone("web", "containerd"), identity.Names{Container: "x"},
		},
		"CRI-O": {
			"run/containers/storage/overlay-containers/" + hexA + "/userdata/config.json",
			`{"annotations":{"io.kubernetes.container.name":"app","io.kubernetes.pod.name":"web","io.kubernetes.pod.namespace":"shop",
			 "io.kubernetes.cri-o.ContainerType":"container","io.kubernetes.cri-o.Name":"k8s_app_web_shop_` + uidA + `_0",
			 "io.kubernetes.cri-o.ImageName":"quay.io/shop/web:1"}}`,
			inPod(hexA, "cri-o"),
			identity.Names{Namespace: "shop", Pod: "web", KubernetesContainer: "app", Container: "k8s_app_web_shop_" + uidA + "_0", Image: "quay.io/shop/web"},
		},
		"CRI-O's sandbox": {
			"run/containers/storage/overlay-containers/" + hexA + "/userdata/config.json",
			`{"annotations":{"io.kubernetes.container.name":"POD","io.kubernetes.pod.name":"web","io.kubernetes.pod.namespace":"shop",
			 "io.kubernetes.cri-o.ContainerType":"sandbox"}}`,
			inPod(hexA, "cri-o"), identity.Names{Namespace: "shop", Pod: "web"},
		},
		"Podman": {
			"var/lib/containers/storage/overlay-containers/containers.json",
			`[{"id":"` + hexB + `","names":["other"]},
			  {"id":"` + hexA + `","names":["web"],"image":"d7af","metadata":"{\"image-name\":\"localhost/web:latest\",\"name\":\"web\"}"}]`,
			alone(hexA, "podman"), identity.Names{Container: "web", Image: "localhost/web"},
		},
		"podman run --rm": {
			"run/containers/storage/overlay-containers/volatile-containers.json", `[{"id":"` + hexA + `","names":["web"],"metadata":"no JSON"}]`,
			alone(hexA, "podman"), identity.Names{Container: "web"},
		},
		"Docker": {
			"var/lib/docker/containers/" + hexA + "/config.v2.json",
			`{"ID":"` + hexA + `","Name":"/web","Config":{"Image":"nginx:1.27","Labels":{"io.kubernetes.pod.namespace":"forged","io.kubernetes.pod.name":"forged"}}}`,
			alone(hexA, "docker"), identity.Names{Container: "web", Image: "nginx"},
		},
		"Docker, with an image that has no name": {
			"var/snap/docker/common/var-lib-docker/containers/" + hexA + "/config.v2.json",
			`{"Name":"/web","Config":{"Image":"sha256:` + hexB + `"}}`,
			alone(hexA, "docker"), identity.Names{Container: "web"},
		},
		"cri-dockerd": {
			"var/lib/docker/containers/" + hexA + "/config.v2.json",
			`{"Name":"/k8s_app_web","Config":{"Image":"web","Labels":{"io.kubernetes.pod.namespace":"shop","io.kubernetes.pod.name":"web",
			 "io.kubernetes.container.name":"app","io.kubernetes.docker.type":"container"}}}`,
			inPod(hexA, "docker"), identity.Names{Namespace: "shop", Pod: "web", KubernetesContainer: "app", Container: "k8s_app_web", Image: "web"},
		},
		"nobody": {"var/log/none", "", alone(hexA, "docker"), identity.Names{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newNameHost(t)
			h.write(c.path, c.text)
			assert.Equal(t, c.want, *h.of(c.in))
		})
	}
}

func TestTheKubeletNamesPodsAndContainers(t *testing.T) {
	h := newNameHost(t, NamesKubelet)
	h.mkdir("var/log/pods/shop_web_" + uidA)
	h.link("app-1", hexA)
	names := h.of(inPod(hexA, "containerd"))
	assert.Equal(t, identity.Names{Namespace: "shop", Pod: "web", KubernetesContainer: "app-1"}, *names)
	t.Attr("pod-names", fmt.Sprint(names.Namespace, "/", names.Pod, "/", names.KubernetesContainer))
	assert.Equal(t, identity.Names{}, *h.of(alone(hexB, "containerd")), "it is in no pod")
}

func TestNamesOfLogsAreParsed(t *testing.T) {
	for file, want := range map[string]logLink{
		"web-6d4b75cb6d-hwz4x_shop_app-" + hexA + ".log": {podName{namespace: "shop", name: "web-6d4b75cb6d-hwz4x"}, "app"},
		"web_shop_side-car-" + hexA + ".log":             {podName{namespace: "shop", name: "web"}, "side-car"},
		"web_shop_app-" + hexA[:50] + ".log":             {}, // cut by the kubelet
		"web_shop_app-" + hexA:                           {},
		"web_shop_-" + hexA + ".log":                     {},
		"web_shop_" + hexA + ".log":                      {},
		"_shop_app-" + hexA + ".log":                     {},
		"web__app-" + hexA + ".log":                      {},
		"a_web_shop_app-" + hexA + ".log":                {},
		"":                                               {},
	} {
		got, id, ok := parseLogLink(file)
		assert.Equal(t, want, got, file)
		assert.Equal(t, want != logLink{}, ok && id == hexA, file)
	}
}

func TestANameThatComesLateIsAwaitedForAShortTime(t *testing.T) {
	h := newNameHost(t, NamesKubelet)
	h.mkdir("var/log/pods/shop_web_"+uidA, "var/log/containers")
	h.scan(time.Second)
	late, never := h.of(inPod(hexA, "containerd")), h.of(inPod(hexB, "containerd"))
	assert.Equal(t, identity.Names{Namespace: "shop", Pod: "web", Pending: true}, *late)
	h.link("app", hexA)
	h.scan(lookForNamesAgain - 1)
	assert.True(t, late.Pending, "the links are not listed again so soon")
	h.scan(1)
	assert.Equal(t, identity.Names{Namespace: "shop", Pod: "web", KubernetesContainer: "app"}, *late)
	h.scan(awaitLink - lookForNamesAgain - 1)
	assert.True(t, never.Pending)
	h.scan(lookForNamesAgain)
	assert.Equal(t, identity.Names{Namespace: "shop", Pod: "web"}, *never)
	h.link("late", hexB)
	h.scan(time.Minute)
	assert.Equal(t, identity.Names{Namespace: "shop", Pod: "web"}, *never, "its series has gone on without")
	assert.Same(t, never, h.of(inPod(hexB, "containerd")))
}

// The container that holds a pod's namespaces starts first, and has no log.
func TestAContainersLogNamesItsPodToo(t *testing.T) {
	h := newNameHost(t, NamesKubelet)
	h.mkdir("var/log/containers")
	h.scan(time.Second)
	sandbox := h.of(inPod(hexB, "containerd"))
	assert.Equal(t, identity.Names{Pending: true}, *sandbox)
	h.link("app", hexA)
	h.scan(time.Second)
	h.of(inPod(hexA, "containerd"))
	h.scan(time.Second)
	assert.Equal(t, identity.Names{Namespace: "shop", Pod: "web", Pending: true}, *sandbox)
	h.scan(2 * forgetNames)
	h.options.Pods.list(h.now)
	assert.Empty(t, h.options.Pods.known)
}

func TestNothingIsAwaitedThatCannotCome(t *testing.T) {
	h := newNameHost(t)
	assert.False(t, h.of(inPod(hexA, "containerd")).Pending, "there is no directory of logs")
	h.mkdir("var/log/containers")
	h.scan(time.Second)
	assert.False(t, h.of(alone(hexB, "docker")).Pending, "it is in no pod")
	assert.True(t, h.of(inPod(strings.Repeat("c", 64), "containerd")).Pending, "the log may come")
}

func TestTheKubeletIsTrustedBeforeTheRuntime(t *testing.T) {
	h := newNameHost(t)
	h.mkdir("var/log/pods/shop_web_" + uidA)
	h.link("app", hexA)
	h.write(bundles+"k8s.io/"+hexA+"/config.json", `{"annotations":{"io.kubernetes.cri.sandbox-namespace":"forged",
		"io.kubernetes.cri.sandbox-name":"forged","io.kubernetes.cri.container-name":"forged","io.kubernetes.cri.image-name":"web:1"}}`)
	assert.Equal(t, identity.Names{Namespace: "shop", Pod: "web", KubernetesContainer: "app", Image: "web"}, *h.of(inPod(hexA, "containerd")))
}

// A user's cgroup may have any container's ID as a name. Below a cgroup owner the ID has a slash.
func TestWorkloadsOfACgroupOwnerHaveNoNames(t *testing.T) {
	h := newNameHost(t)
	h.write("var/lib/docker/containers/"+hexA+"/config.v2.json", `{"Name":"/web"}`)
	assert.Nil(t, h.of(alone("user@1000.service/"+hexA, "docker")))
	assert.Nil(t, h.of(alone("/team/docker-"+hexA+".scope", "docker")))
	assert.Nil(t, h.of(alone("", "")))
}

func TestWhatIsInAPodAndInNoContainerOfTheHostHasThePodsName(t *testing.T) {
	h := newNameHost(t)
	h.mkdir("var/log/pods/shop_web_"+uidA, "var/log/containers")
	monitor, inside := inPod("", ""), inPod(hexA+"/"+hexB, "docker")
	assert.Equal(t, identity.Names{Namespace: "shop", Pod: "web"}, *h.of(monitor))
	assert.Same(t, h.of(monitor), h.of(inside))
	assert.NotSame(t, h.of(monitor), h.of(inPod(hexA, "containerd")))
	owned := inPod("", "")
	owned.Pod.UID = hexA + "/" + uidA
	assert.Nil(t, h.of(owned))
}

func TestHostileFilesNameNothing(t *testing.T) {
	path := "var/lib/docker/containers/" + hexA + "/config.v2.json"
	for name, hostile := range map[string]func(h *nameHost){
		"no JSON":     func(h *nameHost) { h.write(path, `{"Name":"/web"`) },
		"other JSON":  func(h *nameHost) { h.write(path, `{"Name":["/web"]}`) },
		"deep JSON":   func(h *nameHost) { h.write(path, `{"Name":`+strings.Repeat("[", 20_000)) },
		"too large":   func(h *nameHost) { h.write(path, `{"Name":"/web"}`+strings.Repeat(" ", maxRuntimeFile)) },
		"a directory": func(h *nameHost) { h.mkdir(path) },
		"a link out of the directory": func(h *nameHost) {
			h.write("secret", `{"Name":"/web"}`)
			h.mkdir(filepath.Dir(path))
			require.NoError(h.t, os.Symlink(filepath.Join(h.root, "secret"), filepath.Join(h.root, path)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newNameHost(t)
			hostile(h)
			assert.Equal(t, identity.Names{}, *h.of(alone(hexA, "docker")))
		})
	}
}

func TestALinkToAStateFileInTheDirectoryIsFollowed(t *testing.T) {
	h := newNameHost(t)
	h.write("var/lib/docker/containers/config", `{"Name":"/web"}`)
	h.mkdir("var/lib/docker/containers/" + hexA)
	require.NoError(t, os.Symlink("../config", filepath.Join(h.root, "var/lib/docker/containers", hexA, "config.v2.json")))
	assert.Equal(t, identity.Names{Container: "web"}, *h.of(alone(hexA, "docker")))
}

func TestNamesAreBounded(t *testing.T) {
	h := newNameHost(t)
	h.write("var/lib/docker/containers/"+hexA+"/config.v2.json",
		"{\"Name\":\"/a\xff"+strings.Repeat("ä", 300)+`","Config":{"Image":"`+strings.Repeat("x", 10_000)+`"}}`)
	got := h.of(alone(hexA, "docker"))
	for _, name := range []string{got.Container, got.Image} {
		assert.True(t, utf8.ValidString(name))
		assert.Greater(t, len(name), 250)
		assert.LessOrEqual(t, len(name), maxName)
	}
}

func TestImagesHaveNoTagAndDigest(t *testing.T) {
	for reference, want := range map[string]string{
		"nginx": "nginx", "nginx:1.27": "nginx", "host:5000/nginx": "host:5000/nginx", "host:5000/a/nginx:1@sha256:" + hexA: "host:5000/a/nginx",
		"nginx@sha256:" + hexA: "nginx", "sha256:" + hexA: "", hexA: "", "": "",
	} {
		assert.Equal(t, want, imageName(reference), reference)
	}
}

func TestAScanReadsABoundedAmount(t *testing.T) {
	h := newNameHost(t)
	h.scan(time.Second)
	const all = 40
	padding := strings.Repeat(" ", 512<<10)
	var got []*identity.Names
	for i := range all {
		id := fmt.Sprintf("%064x", i)
		h.write("var/lib/docker/containers/"+id+"/config.v2.json", `{"Name":"/web"}`+padding)
		got = append(got, h.of(alone(id, "docker")))
	}
	known := func() (n int) {
		for _, names := range got {
			if names.Container == "web" {
				n++
			} else {
				assert.True(t, names.Pending)
			}
		}
		return n
	}
	each := known()
	assert.InDelta(t, roundBudget/len(padding), each, 1)
	for scans := 1; known() < all; scans++ {
		require.Less(t, scans, all/each+1)
		h.scan(time.Minute) // however long it takes
	}
	assert.Empty(t, h.pending)
}

func TestNamesOfEndedContainersAreForgottenAfterAWhile(t *testing.T) {
	h := newNameHost(t)
	path := "var/lib/docker/containers/" + hexA + "/config.v2.json"
	h.write(path, `{"Name":"/web"}`)
	h.of(alone(hexA, "docker"))
	h.write(path, `{"Name":"/renamed"}`)
	h.scan(time.Minute)
	assert.Equal(t, "web", h.of(alone(hexA, "docker")).Container, "it was restarted")
	h.scan(forgetNames)
	assert.Equal(t, "web", h.of(alone(hexA, "docker")).Container)
	h.scan(forgetNames)
	h.scan(forgetNames)
	assert.Equal(t, "renamed", h.of(alone(hexA, "docker")).Container)
}

func TestSourcesMayBeElsewhere(t *testing.T) {
	h := newNameHost(t)
	o := NamesOptions{Root: h.root, Sources: []NameSource{NamesDocker}, Directories: map[NameSource]string{NamesDocker: "/data/docker"}}
	h.write("data/docker/containers/"+hexA+"/config.v2.json", `{"Name":"/web"}`)
	readable, denied := o.Readable()
	assert.Equal(t, []NameSource{NamesDocker}, readable)
	assert.Empty(t, denied)
	assert.Equal(t, "web", NewNames(o).of(alone(hexA, "docker")).Container)
	o.Directories = nil
	readable, denied = o.Readable()
	assert.Empty(t, readable)
	assert.Empty(t, denied, "it is not there")
}

func TestAllProcessesOfAContainerHaveTheSameNames(t *testing.T) {
	i := newIdentified(t, false)
	i.id.wanted.Names = NewNames(NamesOptions{Root: i.host.Root(), Sources: NameSources, Pods: NewPodLogs("")})
	dir := filepath.Join(i.host.Root(), "var/lib/docker/containers", hexA)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.v2.json"), []byte(`{"Name":"/web"}`), 0o600))
	i.id.Begin(time.Unix(1000, 0))
	path := "/system.slice/docker-" + hexA + ".scope"
	i.in(10, "0::"+path)
	i.in(11, "0::"+path+"/child")
	i.in(12, "0::/user.slice")
	a, _ := i.id.Identity(10)
	names := a.Names
	assert.Equal(t, "web", names.Container)
	b, _ := i.id.Identity(11)
	assert.Same(t, names, b.Names)
	assert.Same(t, names, i.id.PlaceShortLived(path).Names)
	c, _ := i.id.Identity(12)
	assert.Nil(t, c.Names)
	i.end(10)
	i.end(11)
	assert.Same(t, names, i.id.PlaceShortLived(path).Names, "its last children")
}

func TestAScanWithoutNewContainersAllocatesNothing(t *testing.T) {
	h := newNameHost(t, NamesDocker)
	var in []*Placement
	for i := range 100 {
		in = append(in, alone(fmt.Sprintf("%064x", i), "docker"))
		h.of(in[i])
	}
	assert.Zero(t, allocs.Count(100, func() {
		h.begin(h.now.Add(time.Second))
		for _, p := range in {
			h.of(p)
		}
	}))
}

func FuzzParseLogLink(f *testing.F) {
	f.Add("web_shop_app-" + hexA + ".log")
	f.Add("a_b_c")
	f.Fuzz(func(t *testing.T, file string) {
		l, id, ok := parseLogLink(file)
		if ok && file != l.name+"_"+l.namespace+"_"+l.container+"-"+id+".log" {
			t.Fatal(file, l, id)
		}
	})
}

func FuzzRuntimeFiles(f *testing.F) {
	f.Add(`{"Name":"/web","Config":{"Image":"nginx:1","Labels":{"io.kubernetes.pod.name":"web"}}}`)
	f.Add(`{"annotations":{"io.kubernetes.cri.container-name":"app","io.kubernetes.pod.name":"web"}}`)
	f.Add(`[{"id":"x","names":["web"],"metadata":"{}"}]`)
	f.Fuzz(func(t *testing.T, text string) {
		h := newNameHost(t)
		for _, path := range []string{
			bundles + "k8s.io/" + hexA + "/config.json", "run/containers/storage/overlay-containers/" + hexA + "/userdata/config.json",
			"var/lib/containers/storage/overlay-containers/containers.json", "var/lib/docker/containers/" + hexA + "/config.v2.json",
		} {
			h.write(path, text)
		}
		for _, runtime := range []string{"containerd", "cri-o", "podman", "docker"} {
			h.Names = NewNames(h.options)
			names := h.of(inPod(hexA, runtime))
			for _, name := range []string{names.Namespace, names.Pod, names.KubernetesContainer, names.Container, names.Image} {
				if len(name) > maxName || !utf8.ValidString(name) {
					t.Fatalf("%q", name)
				}
			}
		}
	})
}
