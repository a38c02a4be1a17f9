// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	rt "github.com/energyreceiver/energyreceiver/internal/power/redfish/redfishtest"
)

// host makes a root directory with the values that the firmware reported to the kernel.
func host(t *testing.T, uuid, serial string) string {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "sys/class/dmi/id")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "product_uuid"), []byte(uuid+"\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "product_serial"), []byte(serial+"\n"), 0o600))
	return root
}

// several are three machines behind one service, of 100, 200 and 300 W, in an enclosure of 700 W.
func several() rt.Tree {
	tree := rt.Lenovo(rt.Live{Watts: 100})
	const enclosure = "/redfish/v1/Chassis/Enclosure"
	var systems, nodes []string
	for i, id := range []string{"Node1", "Node2", "Node3"} {
		system, chassis := "/redfish/v1/Systems/"+id, "/redfish/v1/Chassis/"+id
		systems, nodes = append(systems, system), append(nodes, chassis)
		tree[system] = rt.Resource("ComputerSystem.v1_20_0.ComputerSystem", id, rt.Object{
			"UUID":         []string{rt.LenovoUUID, rt.DellUUID, rt.HPEUUID}[i],
			"SerialNumber": []string{"CN01", "CN02", "CN02"}[i],
			"Links":        rt.Object{"Chassis": rt.Links(chassis, enclosure)},
		})
		tree[chassis] = rt.Resource("Chassis.v1_20_0.Chassis", id, rt.Object{
			"ChassisType": "Sled", "Power": rt.Link(chassis + "/Power"),
			"Links": rt.Object{"ComputerSystems": rt.Links(system), "ContainedBy": rt.Link(enclosure)},
		})
		tree[chassis+"/Power"] = rt.Resource("Power.v1_6_1.Power", "Power", rt.Object{
			"PowerControl": []any{rt.Object{"PowerConsumedWatts": 100 * (i + 1)}},
		})
	}
	tree[enclosure] = rt.Resource("Chassis.v1_20_0.Chassis", "Enclosure", rt.Object{
		"ChassisType": "RackMount", "Power": rt.Link(enclosure + "/Power"),
		"Links": rt.Object{"ComputerSystems": rt.Links(systems...), "Contains": rt.Links(nodes...)},
	})
	tree[enclosure+"/Power"] = rt.Resource("Power.v1_6_1.Power", "Power", rt.Object{
		"PowerControl": []any{rt.Object{"PowerConsumedWatts": 700}},
	})
	tree["/redfish/v1/Systems"] = rt.Collection("ComputerSystemCollection", "Systems", rt.Links(systems...)...)
	tree["/redfish/v1/Chassis"] = rt.Collection("ChassisCollection", "Chassis", rt.Links(append(nodes, enclosure)...)...)
	return tree
}

func TestTheSystemOfSeveralIsThisMachines(t *testing.T) {
	for name, c := range map[string]struct {
		uuid, serial, system string
		want                 string // the name of the zone, or a part of the error
	}{
		"by its UUID":                    {uuid: rt.DellUUID, want: "Chassis/Node2/Power PowerConsumedWatts"},
		"by its UUID in capitals":        {uuid: "30313736-3839-5A43-3331-333030315832", want: "Chassis/Node3/Power PowerConsumedWatts"},
		"by its UUID in the other order": {uuid: rt.LenovoProductUUID, want: "Chassis/Node1/Power PowerConsumedWatts"},
		"by its serial number":           {uuid: "ffffffff-ffff-ffff-ffff-ffffffffffff", serial: "CN01", want: "Chassis/Node1/Power PowerConsumedWatts"},
		"by the configuration":           {uuid: rt.DellUUID, system: "Node3", want: "Chassis/Node3/Power PowerConsumedWatts"},

		"unknown":              {uuid: "11111111-2222-3333-4444-555555555555", want: "not exactly one has this machine's UUID or serial number: set system to one of: Node1, Node2, Node3"},
		"a serial number of 2": {serial: "CN02", want: "set system to one of: Node1, Node2, Node3"},
		"nothing can be read":  {want: "this machine's UUID in /sys/class/dmi/id cannot be read: set system to one of: Node1, Node2, Node3"},
		"misspelled":           {system: "node1", want: `there is no system "node1"; the service has: Node1, Node2, Node3`},
	} {
		t.Run(name, func(t *testing.T) {
			root := host(t, c.uuid, c.serial)
			withService(t, several(), func(b *bench) {
				b.options.Root, b.options.System = root, c.system
				if strings.HasPrefix(c.want, "Chassis/") {
					assert.Equal(b, c.want, b.one(time.Second).Zone.Name)
				} else {
					assert.Contains(b, b.failure(), c.want)
				}
			})
		})
	}
}

// chassisTree is a system with chassis of these types, each with power of its own, and what
// contains what.
func chassisTree(types map[string]string, contains map[string][]string) rt.Tree {
	tree := dell()
	var all []string
	for id, kind := range types {
		path := "/redfish/v1/Chassis/" + id
		all = append(all, path)
		var parts []string
		for _, part := range contains[id] {
			parts = append(parts, "/redfish/v1/Chassis/"+part)
		}
		tree[path] = rt.Resource("Chassis.v1_23_0.Chassis", id, rt.Object{
			"ChassisType": kind, "EnvironmentMetrics": rt.Link(path + "/EnvironmentMetrics"),
			"Links": rt.Object{"ComputerSystems": rt.Links("/redfish/v1/Systems/System.Embedded.1"), "Contains": rt.Links(parts...)},
		})
		tree[path+"/EnvironmentMetrics"] = rt.Resource("EnvironmentMetrics.v1_3_0.EnvironmentMetrics", "EnvironmentMetrics", rt.Object{
			"PowerWatts": rt.Object{"Reading": 300},
		})
	}
	tree["/redfish/v1/Systems/System.Embedded.1"]["Links"] = rt.Object{"Chassis": rt.Links(all...)}
	tree["/redfish/v1/Chassis"] = rt.Collection("ChassisCollection", "Chassis", rt.Links(all...)...)
	return tree
}

func TestOneOfSeveralChassisIsTheMachine(t *testing.T) {
	for name, c := range map[string]struct {
		types    map[string]string
		contains map[string][]string
	}{
		"its GPU trays are parts":                    {map[string]string{"Self": "RackMount", "GPU1": "Module", "GPU2": "Module"}, map[string][]string{"Self": {"GPU1", "GPU2"}}},
		"what it contains is a part":                 {map[string]string{"Self": "RackMount", "Tray": "RackMount"}, map[string][]string{"Self": {"Tray"}}},
		"trays that nothing contains are parts, too": {map[string]string{"Self": "RackMount", "GPU1": "Module", "Drives": "StorageEnclosure"}, nil},
		"an enclosure is not it":                     {map[string]string{"Self": "RackMount", "Outer": "Enclosure"}, map[string][]string{"Outer": {"Self"}}},
		"what contains a sled is not it":             {map[string]string{"Self": "Sled", "Outer": "RackMount", "GPU1": "Module"}, map[string][]string{"Outer": {"Self"}, "Self": {"GPU1"}}},
		"an enclosure alone is it":                   {map[string]string{"Self": "Enclosure"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			withService(t, chassisTree(c.types, c.contains), func(b *bench) {
				first := b.one(time.Second)
				assert.Equal(b, "Chassis/Self/EnvironmentMetrics PowerWatts", first.Zone.Name)
			})
		})
	}
}

func TestChassisThatCannotBeToldApartAreAnErrorUntilOneIsChosen(t *testing.T) {
	tree := chassisTree(map[string]string{"A": "RackMount", "B": "RackMount"}, nil)
	withService(t, tree, func(b *bench) {
		assert.Contains(b, b.failure(), "several chassis may be this machine: set chassis to one of: A, B")
	})
	withService(t, tree, func(b *bench) {
		b.options.Chassis = "B"
		assert.Equal(b, "Chassis/B/EnvironmentMetrics PowerWatts", b.one(time.Second).Zone.Name)
	})
	withService(t, tree, func(b *bench) {
		b.options.Chassis = "C"
		assert.Contains(b, b.failure(), `there is no chassis "C"; the service has: A, B`)
	})
}

func TestAChassisThatIsSharedIsNotThisMachine(t *testing.T) {
	tree := several()
	delete(tree, "/redfish/v1/Chassis/Node1")
	tree["/redfish/v1/Systems/Node1"]["Links"] = rt.Object{"Chassis": rt.Links("/redfish/v1/Chassis/Enclosure")}
	withService(t, tree, func(b *bench) {
		b.options.System = "Node1"
		assert.Contains(b, b.failure(), "chassis Enclosure has other systems as well: its power is not the power of this machine")
	})
}

func TestAChassisThatOnlyItselfNamesItsSystemIsFound(t *testing.T) {
	tree := several()
	delete(tree["/redfish/v1/Systems/Node2"], "Links")
	const rack = "/redfish/v1/Chassis/Neighbor"
	tree[rack] = rt.Resource("Chassis.v1_20_0.Chassis", "Neighbor", rt.Object{"ChassisType": "Sled"})
	tree["/redfish/v1/Chassis"]["Members"] = append(tree["/redfish/v1/Chassis"]["Members"].([]any), rt.Link(rack))
	withService(t, tree, func(b *bench) {
		b.options.System = "Node2"
		assert.Equal(b, "Chassis/Node2/Power PowerConsumedWatts", b.one(time.Second).Zone.Name)
	})
}

func TestAMachineWithoutAnyPowerIsAnErrorThatSaysWhatWasTried(t *testing.T) {
	tree := dell()
	tree[rt.DellEnvironment] = rt.Resource("EnvironmentMetrics.v1_3_0.EnvironmentMetrics", "EnvironmentMetrics", nil)
	withService(t, tree, func(b *bench) {
		b.server.Fail(rt.Status(403), rt.Path(rt.DellPower))
		assert.Equal(b, "redfish bmc.example: Chassis/System.Embedded.1 has no power that can be read: "+
			"Chassis/System.Embedded.1/EnvironmentMetrics: there is no value; "+
			"Chassis/System.Embedded.1/PowerSubsystem: the server answered 404 Not Found (ResourceMissingAtURI); "+
			"Chassis/System.Embedded.1/Power: the server answered 403 Forbidden", b.failure())
	})
	for _, key := range []string{"EnvironmentMetrics", "PowerSubsystem", "Power"} {
		delete(tree["/redfish/v1/Chassis/System.Embedded.1"], key)
	}
	withService(t, tree, func(b *bench) {
		assert.Equal(b, "redfish bmc.example: Chassis/System.Embedded.1 has no EnvironmentMetrics, PowerSubsystem or Power", b.failure())
	})
}

// Up to 64 resources are held while the machine is looked for.
func TestResourcesOfAHostileServiceAreBounded(t *testing.T) {
	const chassis = "/redfish/v1/Chassis/System.Embedded.1"
	for want, edit := range map[string]func(rt.Tree){
		"Systems has more than 64 members": func(tree rt.Tree) {
			tree["/redfish/v1/Systems"] = rt.Collection("ComputerSystemCollection", "Systems", rt.Links(make([]string, 65)...)...)
		},
		"Chassis/System.Embedded.1: the resource is larger than 512 KiB": func(tree rt.Tree) {
			tree[chassis]["Description"] = strings.Repeat("x", 512<<10)
		},
		"Chassis/System.Embedded.1 has more than 1024 links": func(tree rt.Tree) {
			tree[chassis]["Links"] = rt.Object{"ComputerSystems": rt.Links(make([]string, 1025)...)}
		},
		"Systems/System.Embedded.1 has more than 1024 links": func(tree rt.Tree) {
			tree["/redfish/v1/Systems/System.Embedded.1"]["Links"] = rt.Object{"Chassis": rt.Links(make([]string, 1025)...)}
		},
	} {
		tree := dell()
		edit(tree)
		withService(t, tree, func(b *bench) { assert.Contains(b, b.failure(), want) })
	}
}

func TestASystemWhoseIDIsNotShownHasAZoneAndIsCounted(t *testing.T) {
	tree := dell()
	tree["/redfish/v1/Systems/Blade 1"] = tree["/redfish/v1/Systems/System.Embedded.1"]
	withService(t, tree, func(b *bench) {
		b.server.Set("/redfish/v1/Systems/Blade 1", "none", "UUID")
		b.server.Set("/redfish/v1/Systems", rt.Links("/redfish/v1/Systems/Blade%201"), "Members")
		b.server.Set("/redfish/v1/Chassis/System.Embedded.1", rt.Links("/redfish/v1/Systems/Blade%201"), "Links", "ComputerSystems")
		assert.Regexp(b, "^redfish:[0-9a-f]{16}$", b.one(time.Second).Zone.ID)
	})
	withService(t, tree, func(b *bench) {
		b.server.Set("/redfish/v1/Systems", rt.Links("/redfish/v1/Systems/Blade%201", "/redfish/v1/Systems/Node2"), "Members")
		b.options.System = "Node1"
		assert.Contains(b, b.failure(), `the service has: Node2, 1 that are too long or have special characters (see /redfish/v1/Systems)`)
	})
}

func TestTextsOfTheBMCThatAreNoIDsAreNotShown(t *testing.T) {
	for _, secret := range []string{rt.Password, "Basic ZW5lcmd5OmNvcnJlY3QgaG9yc2U=", "x\x1b[31m\u202e\n" + rt.Password} {
		for name, echo := range map[string]func(b *bench){
			"a message": func(b *bench) {
				b.server.Fail(func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(http.StatusInternalServerError)
					_ = json.NewEncoder(w).Encode(rt.Object{"error": rt.Object{"@Message.ExtendedInfo": []any{rt.Object{"MessageId": "Base.1.0." + secret}}}})
				}, rt.Path("/redfish/v1/Chassis/System.Embedded.1"))
			},
			"the system": func(b *bench) {
				b.server.Set("/redfish/v1/Systems", rt.Links("/redfish/v1/Systems/"+secret), "Members")
			},
			"the chassis": func(b *bench) {
				b.server.Set("/redfish/v1/Systems/System.Embedded.1", rt.Links("/redfish/v1/Chassis/"+secret, "/redfish/v1/Chassis/1"), "Links", "Chassis")
			},
			"a zone": func(b *bench) {
				b.server.Set("/redfish/v1/Chassis/"+secret, rt.Object{"Reading": 300}, "PowerWatts")
				b.server.Set("/redfish/v1/Chassis/System.Embedded.1", "/redfish/v1/Chassis/"+secret, "EnvironmentMetrics", "@odata.id")
			},
		} {
			withService(t, dell(), func(b *bench) {
				echo(b)
				readings, err := b.read(5 * time.Minute)
				texts := []string{fmt.Sprint(err)}
				for _, r := range readings {
					texts = append(texts, fmt.Sprint(r.Err), r.Zone.ID, r.Zone.Name)
				}
				assert.NotContains(b, strings.Join(texts, " "), secret, name)
				assert.NotContains(b, strings.Join(texts, " "), "\x1b", name)
			})
		}
	}
}
