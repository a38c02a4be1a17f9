// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
)

// maxMembers is the maximum number of systems, chassis or power supplies that are read. A service
// with more members manages a rack and is not the BMC of a machine.
const maxMembers = 64

// maxLinks is the maximum number of links of a system or chassis. All of them are in memory during
// the search for the machine.
const maxLinks = 1024

type collection struct{ Members []link }

// system is a ComputerSystem.
type system struct {
	path         string
	UUID         string
	SerialNumber string
	Links        struct{ Chassis []link }
}

// chassis is a Chassis.
type chassis struct {
	path           string
	ChassisType    string
	Environment    link `json:"EnvironmentMetrics"`
	PowerSubsystem link
	Power          link
	Links          struct {
		ComputerSystems, Contains []link
		ContainedBy               link
	}
}

// members returns the paths of a collection's members.
func (s *service) members(ctx context.Context, of string) ([]string, error) {
	var c collection
	if _, err := s.get(ctx, of, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", name(of), err)
	}
	return paths(c.Members, of)
}

// paths returns the paths of links in a resource.
func paths(links []link, in string) ([]string, error) {
	if len(links) > maxMembers {
		return nil, fmt.Errorf("%s has more than %d members", name(in), maxMembers)
	}
	found := make([]string, len(links))
	for i, l := range links {
		found[i] = clean(l.Path)
	}
	return found, nil
}

// clean makes paths comparable: some services end them with a slash.
func clean(p string) string { return strings.TrimRight(p, "/") }

// id returns the ID of a resource, which is the end of its path.
func id(p string) string { return path.Base(p) }

// name returns the path of a resource below the service root, for logs and errors.
func name(p string) string {
	ids := strings.Split(strings.TrimPrefix(clean(p), rootPath), "/")
	for i := range ids {
		ids[i] = fetch.ID(ids[i])
	}
	return strings.Join(ids, "/")
}

// ids returns the IDs of resources for errors. The text is the same for the same resources.
func ids(paths []string) string {
	var names []string
	for _, p := range paths {
		if name := id(p); fetch.ID(name) == name {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if n := len(paths) - len(names); n > 0 {
		names = append(names, fmt.Sprintf("%d that are too long or have special characters (see %s)", n, rootPath+name(path.Dir(paths[0]))))
	}
	return strings.Join(names, ", ")
}

func (s *service) system(ctx context.Context, p string) (*system, error) {
	found := &system{path: p}
	if _, err := s.get(ctx, p, found); err != nil {
		return nil, fmt.Errorf("%s: %w", name(p), err)
	}
	return found, bound(p, found.Links.Chassis)
}

// bound returns an error if a resource has too many links.
func bound(in string, lists ...[]link) error {
	for _, links := range lists {
		if len(links) > maxLinks {
			return fmt.Errorf("%s has more than %d links", name(in), maxLinks)
		}
	}
	return nil
}

func (s *service) chassis(ctx context.Context, p string) (*chassis, error) {
	found := &chassis{path: p}
	if _, err := s.get(ctx, p, found); err != nil {
		return nil, fmt.Errorf("%s: %w", name(p), err)
	}
	return found, bound(p, found.Links.ComputerSystems, found.Links.Contains)
}

// findSystem returns the system that is this machine. It is the system in the options, or the only
// system, or the system with the UUID or serial number that the firmware reported to the kernel.
func (s *Sensor) findSystem(ctx context.Context) (*system, error) {
	if err := s.service.open(ctx); err != nil {
		return nil, err
	}
	all, err := s.service.members(ctx, s.service.root.Systems.Path)
	if err != nil {
		return nil, err
	}
	switch {
	case s.options.System != "":
		p, err := member(all, "system", s.options.System)
		if err != nil {
			return nil, err
		}
		return s.service.system(ctx, p)
	case len(all) == 0:
		return nil, errors.New("the service has no system")
	case len(all) == 1:
		return s.service.system(ctx, all[0])
	}
	return s.matchSystem(ctx, all)
}

// member returns the path of the resource with the ID want. kind names the resources in the error.
func member(all []string, kind, want string) (string, error) {
	i := slices.IndexFunc(all, func(p string) bool { return id(p) == want })
	if i < 0 {
		return "", fmt.Errorf("there is no %s %q; the service has: %s", kind, want, ids(all))
	}
	return all[i], nil
}

// matchSystem returns the system with this machine's UUID or serial number.
func (s *Sensor) matchSystem(ctx context.Context, all []string) (*system, error) {
	uuid, serial := s.dmi("product_uuid"), s.dmi("product_serial")
	var byUUID, bySerial []*system
	for _, p := range all {
		candidate, err := s.service.system(ctx, p)
		if err != nil {
			return nil, err
		}
		if sameUUID(candidate.UUID, uuid) {
			byUUID = append(byUUID, candidate)
		}
		if serial != "" && strings.TrimSpace(candidate.SerialNumber) == serial {
			bySerial = append(bySerial, candidate)
		}
	}
	switch {
	case len(byUUID) == 1:
		return byUUID[0], nil
	case len(bySerial) == 1:
		return bySerial[0], nil
	case uuid == "" && serial == "":
		return nil, fmt.Errorf("the service has several systems, and this machine's UUID in /sys/class/dmi/id cannot be read: "+
			"set system to one of: %s", ids(all))
	}
	return nil, fmt.Errorf("the service has several systems, and not exactly one has this machine's UUID or serial number: "+
		"set system to one of: %s", ids(all))
}

// dmi returns a value in /sys/class/dmi/id, which the firmware reported to the kernel. It returns
// an empty string if the value cannot be read. Most values are readable only by root.
func (s *Sensor) dmi(file string) string {
	text, _ := os.ReadFile(filepath.Join(s.options.Root, "sys/class/dmi/id", file))
	return strings.TrimSpace(string(text))
}

// sameUUID reports whether a and b are the same UUID. Some BMCs report the first three fields in
// the byte order of SMBIOS (DSP0134, 7.2.1). sameUUID accepts both orders. An example is
// https://github.com/metal-stack/go-hal/issues/57.
func sameUUID(a, b string) bool {
	a, b = strings.ToLower(strings.TrimSpace(a)), strings.ToLower(strings.TrimSpace(b))
	return isUUID(a) && isUUID(b) && (a == b || a == swapped(b))
}

// isUUID reports whether s has the format of a UUID and consists of more than one digit.
// Firmware without a UUID reports, for example, only zeros.
func isUUID(s string) bool {
	if len(s) != 36 || strings.Trim(s, s[:1]+"-") == "" {
		return false
	}
	for i, r := range []byte(s) {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (r == '-') || !dash && !strings.ContainsRune("0123456789abcdef", rune(r)) {
			return false
		}
	}
	return true
}

// swapped returns a UUID with the bytes of each of its first three fields in reverse order.
func swapped(uuid string) string {
	u := []byte(uuid)
	for _, field := range [][2]int{{0, 8}, {9, 13}, {14, 18}} {
		for i, j := field[0], field[1]-2; i < j; i, j = i+2, j-2 {
			u[i], u[i+1], u[j], u[j+1] = u[j], u[j+1], u[i], u[i+1]
		}
	}
	return string(u)
}
