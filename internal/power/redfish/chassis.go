// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// findChassis returns the chassis that is exactly this machine.
func (s *Sensor) findChassis(ctx context.Context, of *system) (*chassis, error) {
	if want := s.options.Chassis; want != "" {
		all, err := s.service.members(ctx, s.service.root.Chassis.Path)
		if err != nil {
			return nil, err
		}
		p, err := member(all, "chassis", want)
		if err != nil {
			return nil, err
		}
		return s.service.chassis(ctx, p)
	}
	candidates, err := s.relatedChassis(ctx, of)
	if err != nil {
		return nil, err
	}
	own := slices.Clone(candidates)
	own = slices.DeleteFunc(own, func(c *chassis) bool { return c.hasOther(of.path) })
	switch {
	case len(candidates) == 0:
		return nil, errors.New("the service names no chassis of this machine: set chassis")
	case len(own) == 0:
		return nil, fmt.Errorf("chassis %s has other systems as well: its power is not the power of this machine", chassisIDs(candidates))
	}
	if own = whole(own); len(own) > 1 {
		return nil, fmt.Errorf("several chassis may be this machine: set chassis to one of: %s", chassisIDs(own))
	}
	return own[0], nil
}

// relatedChassis returns the chassis that a system names, or that name the system.
func (s *Sensor) relatedChassis(ctx context.Context, of *system) ([]*chassis, error) {
	related, err := paths(of.Links.Chassis, of.path)
	if err != nil {
		return nil, err
	}
	named := len(related) > 0
	if !named {
		if related, err = s.service.members(ctx, s.service.root.Chassis.Path); err != nil {
			return nil, err
		}
	}
	var found []*chassis
	for _, p := range related {
		c, err := s.service.chassis(ctx, p)
		if err != nil {
			return nil, err
		}
		if named || len(related) == 1 || linksTo(c.Links.ComputerSystems, of.path) {
			found = append(found, c)
		}
	}
	return found, nil
}

// hasOther reports whether the chassis has a system other than this one.
func (c *chassis) hasOther(system string) bool {
	return slices.ContainsFunc(c.Links.ComputerSystems, func(l link) bool { return clean(l.Path) != system })
}

// contains reports whether the other chassis is inside of this one.
func (c *chassis) contains(other *chassis) bool {
	return c != other && (linksTo(c.Links.Contains, other.path) || clean(other.Links.ContainedBy.Path) == c.path)
}

func linksTo(links []link, p string) bool {
	return slices.ContainsFunc(links, func(l link) bool { return clean(l.Path) == p })
}

// Chassis types (DSP8010, Chassis) of machines that share an enclosure with other machines, of
// enclosures for several machines, and of equipment that is not a machine.
var (
	nodeTypes      = []string{"Blade", "Sled", "Cartridge"}
	enclosureTypes = []string{"Enclosure", "Rack", "RackGroup", "Row", "Pod", "Shelf", "ImmersionTank"}
	partTypes      = []string{
		"StorageEnclosure", "IPBasedDrive", "Component", "Card", "Module", "Expansion", "Zone", "PowerStrip", "HeatExchanger", "Other",
	}
)

// whole returns the candidates that may be the whole machine. The result has at least one chassis.
func whole(candidates []*chassis) []*chassis {
	for _, isOut := range []func(c *chassis) bool{
		func(c *chassis) bool { // an enclosure of machines, if the service lists only this machine
			return slices.Contains(enclosureTypes, c.ChassisType) || slices.ContainsFunc(candidates, func(o *chassis) bool {
				return slices.Contains(nodeTypes, o.ChassisType) && c.contains(o)
			})
		},
		func(c *chassis) bool { // a part of the machine
			return slices.ContainsFunc(candidates, func(o *chassis) bool { return o.contains(c) })
		},
		func(c *chassis) bool { return slices.Contains(partTypes, c.ChassisType) },
	} {
		if left := slices.DeleteFunc(slices.Clone(candidates), isOut); len(left) > 0 {
			candidates = left
		}
	}
	return candidates
}

func chassisIDs(all []*chassis) string {
	found := make([]string, len(all))
	for i, c := range all {
		found[i] = c.path
	}
	return ids(found)
}
