// SPDX-License-Identifier: Apache-2.0

package redfishtest

import "encoding/json"

// UUIDs of the systems. LenovoUUID is in SMBIOS' byte order in the service; the kernel shows it as
// LenovoProductUUID.
const (
	DellUUID          = "4c4c4544-0041-3510-8052-c2c04f593033"
	HPEUUID           = "30313736-3839-5a43-3331-333030315832"
	LenovoUUID        = "44332211-6655-8877-99aa-bbccddeeff00"
	LenovoProductUUID = "11223344-5566-7788-99aa-bbccddeeff00"
)

// Paths of the resources that report power.
const (
	DellEnvironment = "/redfish/v1/Chassis/System.Embedded.1/EnvironmentMetrics"
	DellPower       = "/redfish/v1/Chassis/System.Embedded.1/Power"
	HPESupplies     = "/redfish/v1/Chassis/1/PowerSubsystem/PowerSupplies"
	HPEPower        = "/redfish/v1/Chassis/1/Power"
	LenovoPower     = "/redfish/v1/Chassis/1/Power"
)

// Live are the values of a machine, each a number or a func() any that returns one.
type Live struct {
	Watts any // that the machine draws
	KWh   any // the total; nil if the service has no counter
}

func (l Live) watts() any { return scaled(l.Watts, 1) }

// Link returns a reference to a resource.
func Link(path string) Object { return Object{"@odata.id": path} }

// Links returns references to resources.
func Links(paths ...string) []any {
	links := make([]any, len(paths))
	for i, path := range paths {
		links[i] = Link(path)
	}
	return links
}

// Collection returns a collection with members.
func Collection(schema, name string, members ...any) Object {
	if members == nil {
		members = []any{}
	}
	return Object{
		"@odata.type": "#" + schema + "." + schema, "Name": name, "Members@odata.count": len(members), "Members": members,
	}
}

// Resource returns a resource with the properties that the specification requires, and more.
func Resource(schema, id string, more Object) Object {
	o := Object{"@odata.type": "#" + schema, "Id": id, "Name": id}
	for key, value := range more {
		o[key] = value
	}
	return o
}

var enabled = Object{"State": "Enabled", "Health": "OK"}

// root returns a service root, and the collections of its systems and chassis.
func root(vendor string, systems, chassis []any) Tree {
	return Tree{
		"/redfish/v1": Resource("ServiceRoot.v1_15_0.ServiceRoot", "RootService", Object{
			"RedfishVersion": "1.15.0", "Vendor": vendor, "UUID": "00000000-0000-0000-0000-000000000001",
			"Systems": Link("/redfish/v1/Systems"), "Chassis": Link("/redfish/v1/Chassis"),
			"Links": Object{"Sessions": Link("/redfish/v1/SessionService/Sessions")},
		}),
		"/redfish/v1/Systems": Collection("ComputerSystemCollection", "Systems", systems...),
		"/redfish/v1/Chassis": Collection("ChassisCollection", "Chassis", chassis...),
	}
}

func system(id, uuid string, chassis []any) Object {
	return Resource("ComputerSystem.v1_20_0.ComputerSystem", id, Object{
		"SystemType": "Physical", "UUID": uuid, "SerialNumber": "CN7016-" + id, "PowerState": "On", "Status": enabled,
		"BiosVersion": "1.0", "Manufacturer": "Example", "Model": "Example",
		"Links": Object{"Chassis": chassis},
	})
}

// Dell returns resources as of an iDRAC 9: EnvironmentMetrics with power and a counter, Power with
// the last minute's average, and an enclosure of drives next to the machine.
//
// Shapes: Dell's Redfish scripts (github.com/dell/iDRAC-Redfish-Scripting) and Checkmk's test data
// of an iDRAC's EnvironmentMetrics (github.com/Checkmk/checkmk, tests of
// redfish_environmentmetrics).
func Dell(live Live) Tree {
	const chassis, drives = "/redfish/v1/Chassis/System.Embedded.1", "/redfish/v1/Chassis/Enclosure.Internal.0-1"
	t := root("Dell", Links("/redfish/v1/Systems/System.Embedded.1"), Links(chassis, drives))
	t["/redfish/v1/Systems/System.Embedded.1"] = system("System.Embedded.1", DellUUID, Links(chassis))
	t[chassis] = Resource("Chassis.v1_23_0.Chassis", "System.Embedded.1", Object{
		"ChassisType": "RackMount", "Status": enabled,
		"EnvironmentMetrics": Link(DellEnvironment), "Power": Link(DellPower),
		"PowerSubsystem": Link(chassis + "/PowerSubsystem"),
		"Links":          Object{"ComputerSystems": Links("/redfish/v1/Systems/System.Embedded.1"), "Contains": Links(drives)},
	})
	t[drives] = Resource("Chassis.v1_23_0.Chassis", "Enclosure.Internal.0-1", Object{
		"ChassisType": "StorageEnclosure", "Links": Object{"ContainedBy": Link(chassis)},
	})
	metrics := Object{"PowerWatts": Object{"Reading": live.watts(), "DataSourceUri": chassis + "/Sensors/SystemBoardPwrConsumption"}}
	if live.KWh != nil {
		metrics["EnergykWh"] = Object{"Reading": scaled(live.KWh, 1)}
	}
	t[DellEnvironment] = Resource("EnvironmentMetrics.v1_3_0.EnvironmentMetrics", "EnvironmentMetrics", metrics)
	t[DellPower] = Resource("Power.v1_7_1.Power", "Power", Object{"PowerControl": []any{Object{
		"MemberId": "PowerControl", "Name": "System Power Control", "PowerConsumedWatts": live.watts(), "PowerCapacityWatts": 1800,
		"PowerMetrics": Object{"AverageConsumedWatts": live.watts(), "IntervalInMin": 1},
		"RelatedItem":  Links(chassis, "/redfish/v1/Systems/System.Embedded.1"),
	}}})
	return t
}

// HPE returns resources as of an iLO 6: no EnvironmentMetrics, two power supplies and an empty bay,
// and Power with the average of 20 minutes. Its links end with a slash.
//
// Shapes: HPE's reference of iLO 6, chassis and power resources
// (servermanagementportal.ext.hpe.com/docs/redfishservices/ilos/ilo6).
func HPE(live Live) Tree {
	const chassis = "/redfish/v1/Chassis/1"
	t := root("HPE", Links("/redfish/v1/Systems/1/"), Links(chassis+"/"))
	t["/redfish/v1/Systems/1"] = system("1", HPEUUID, Links(chassis+"/"))
	t[chassis] = Resource("Chassis.v1_19_0.Chassis", "1", Object{
		"ChassisType": "RackMount", "Status": enabled,
		"PowerSubsystem": Link(chassis + "/PowerSubsystem/"), "Power": Link(HPEPower + "/"),
		"Links": Object{"ComputerSystems": Links("/redfish/v1/Systems/1/")},
	})
	t[chassis+"/PowerSubsystem"] = Resource("PowerSubsystem.v1_1_0.PowerSubsystem", "PowerSubsystem", Object{
		"CapacityWatts": 1600, "PowerSupplies": Link(HPESupplies + "/"),
	})
	t[HPESupplies] = Collection("PowerSupplyCollection", "PowerSupplies", Links(HPESupplies+"/0/", HPESupplies+"/1/", HPESupplies+"/2/")...)
	for _, bay := range []string{"0", "1"} {
		t[HPESupplies+"/"+bay] = Resource("PowerSupply.v1_3_0.PowerSupply", bay, Object{
			"PowerCapacityWatts": 800, "Status": enabled, "Metrics": Link(HPESupplies + "/" + bay + "/Metrics/"),
		})
		metrics := Object{
			"InputPowerWatts":  Object{"Reading": scaled(live.Watts, 0.5)},
			"OutputPowerWatts": Object{"Reading": scaled(live.Watts, 0.46)},
		}
		if live.KWh != nil {
			metrics["EnergykWh"] = Object{"Reading": scaled(live.KWh, 0.5)}
		}
		t[HPESupplies+"/"+bay+"/Metrics"] = Resource("PowerSupplyMetrics.v1_0_1.PowerSupplyMetrics", "Metrics", metrics)
	}
	t[HPESupplies+"/2"] = Resource("PowerSupply.v1_3_0.PowerSupply", "2", Object{"Status": Object{"State": "Absent"}})
	t[HPEPower] = Resource("Power.v1_3_0.Power", "Power", Object{"PowerControl": []any{Object{
		"MemberId": "0", "PowerConsumedWatts": live.watts(), "PowerCapacityWatts": 1600,
		"PowerMetrics": Object{"AverageConsumedWatts": live.watts(), "MaxConsumedWatts": 700, "MinConsumedWatts": 90, "IntervalInMin": 20},
	}}})
	return t
}

// value is a JSON number. The function returns the number for each response.
type value func() any

// MarshalJSON calls the function.
func (v value) MarshalJSON() ([]byte, error) { return json.Marshal(v()) }

// scaled returns a number, or the result of a function, multiplied by a factor.
func scaled(v any, by float64) any {
	switch v := v.(type) {
	case func() any:
		return value(func() any { return scaled(v(), by) })
	case float64:
		return v * by
	case int:
		return float64(v) * by
	}
	return v
}

// Lenovo returns resources as of an XClarity Controller in a D2 enclosure: a node and the enclosure
// of four, Power with the power of the node and of its processors.
//
// Shapes: Lenovo's XCC REST API guide, Chassis and Power of nodes and of the D2 enclosure
// (pubs.lenovo.com/xcc-restapi).
func Lenovo(live Live) Tree {
	const node, enclosure = "/redfish/v1/Chassis/1", "/redfish/v1/Chassis/2"
	t := root("Lenovo", Links("/redfish/v1/Systems/1"), Links(node, enclosure))
	t["/redfish/v1/Systems/1"] = system("1", LenovoUUID, Links(node, enclosure))
	t[node] = Resource("Chassis.v1_20_0.Chassis", "1", Object{
		"ChassisType": "Blade", "Status": enabled, "Power": Link(LenovoPower),
		"Links": Object{"ComputerSystems": Links("/redfish/v1/Systems/1"), "ContainedBy": Link(enclosure)},
	})
	t[enclosure] = Resource("Chassis.v1_20_0.Chassis", "2", Object{
		"ChassisType": "Enclosure", "Power": Link(enclosure + "/Power"), "Links": Object{"Contains": Links(node)},
	})
	t[LenovoPower] = Resource("Power.v1_6_1.Power", "Power", Object{"PowerControl": []any{
		Object{
			"MemberId": "1", "Name": "CPU Sub-system Power", "PowerConsumedWatts": 90,
			"RelatedItem": Links("/redfish/v1/Systems/1/Processors/1"),
		},
		Object{
			"MemberId": "0", "Name": "Server Power Control", "PowerConsumedWatts": live.watts(), "RelatedItem": Links(node),
		},
	}})
	t[enclosure+"/Power"] = Resource("Power.v1_6_1.Power", "Power", Object{"PowerControl": []any{Object{
		"MemberId": "0", "Name": "Server Power Control", "PowerConsumedWatts": 1400, "RelatedItem": Links(enclosure),
	}}})
	return t
}
