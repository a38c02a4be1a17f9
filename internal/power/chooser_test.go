// SPDX-License-Identifier: Apache-2.0

package power

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestChoice(t *testing.T) {
	type step struct{ shows, reports, failed string }
	for name, c := range map[string]struct {
		meters string
		steps  []step
		closed string // the meters that are closed, and how often they were read
	}{
		"each kind has the zones of the first meter that reads it": {"first second", []step{
			{"first:package first:psys second:package second:dram", "first:package first:psys second:dram", ""},
		}, ""},
		"a kind that nothing reads has the zones of the first sensor that lists it": {"first second", []step{
			{"first:package! second:package!", "first:package", "first:package second:package"},
		}, ""},
		"a preferred meter takes a kind once it reads the kind, and keeps the kind": {"first model*", []step{
			{"first:package! first:dram model:package", "first:dram model:package", "first:package"},
			{"first:package first:dram model:package", "first:package first:dram", ""},
			{"first:package! first:dram model:package", "first:package first:dram", "first:package"},
			{"model:package", "", ""},
		}, ""},
		"the whole machine may be modeled in addition to psys": {"first model*", []step{
			{"first:psys model:platform", "first:psys model:platform", ""},
		}, ""},

		"a model stands in for what nothing measures":               {"rapl model*", []step{{"model:package model:dram", "model:package model:dram", ""}}, ""},
		"a model does not stand in for DRAM if package is measured": {"rapl model*", []step{{"rapl:package model:package model:dram", "rapl:package", ""}}, ""},
		"a model that completes sensors does":                       {"rapl model+", []step{{"rapl:package model:package model:dram", "rapl:package model:dram", ""}}, ""},
		"only memory is measured":                                   {"rapl model+", []step{{"rapl:dram model:package model:dram", "rapl:dram model:package", ""}}, ""},
		"psys is measured":                                          {"rapl model+", []step{{"rapl:psys model:package model:dram", "rapl:psys", ""}}, ""},
		"platform is measured":                                      {"bmc model+", []step{{"bmc:platform model:package model:dram", "bmc:platform", ""}}, ""},
		"a graphics card is measured":                               {"lib model+", []step{{"lib:gpu@1 model:package model:dram", "lib:gpu@1 model:package model:dram", ""}}, ""},
		"the memory's sensor appears late and is lost": {"rapl model+", []step{
			{"rapl:package model:package model:dram", "rapl:package model:dram", ""},
			{"rapl:package rapl:dram model:package model:dram", "rapl:package rapl:dram", ""},
			{"rapl:package rapl:dram! model:package model:dram", "rapl:package rapl:dram", "rapl:dram"},
			{"model:package model:dram", "", ""},
		}, ""},
		"the whole machine's sensor appears late and is lost": {"rapl bmc model+", []step{
			{"rapl:package model:package model:dram", "rapl:package model:dram", ""},
			{"rapl:package bmc:platform model:package model:dram", "rapl:package bmc:platform", ""},
			{"rapl:package model:package model:dram", "rapl:package", ""},
		}, ""},
		"a package that a sensor only lists is modeled although the machine is measured, and memory is not": {"rapl bmc model+", []step{
			{"rapl:package! rapl:dram! bmc:platform model:package model:dram", "rapl:dram bmc:platform model:package", "rapl:package rapl:dram"},
		}, ""},

		"of a family only the first that reads a zone is used": {"powercap/rapl perf/rapl cray", []step{
			{"powercap:package perf:package perf:dram perf:psys cray:dram", "powercap:package cray:dram", ""},
			{"powercap:package! perf:package perf:dram cray:dram", "powercap:package cray:dram", "powercap:package"},
		}, "perf 0"},
		"a family is read by the second while the first cannot be read": {"powercap/rapl perf/rapl model*", []step{
			{"powercap:package! powercap:dram! powercap:core! perf:package perf:dram model:package", "perf:package perf:dram", ""},
			{"powercap:package! powercap:dram powercap:core! perf:package perf:dram model:package",
				"powercap:dram powercap:core model:package", "powercap:package powercap:core"},
			{"powercap:package powercap:dram powercap:core model:package", "powercap:package powercap:dram powercap:core", ""},
		}, "perf 2"},
		"a family that cannot be read has the zones of the first": {"powercap/rapl perf/rapl", []step{
			{"powercap:package! perf:package!", "powercap:package", "powercap:package perf:package"},
		}, ""},
		"a sensor that is replaced lists nothing": {"powercap/rapl perf/rapl ipmi", []step{
			{"powercap:package! powercap:dram! perf:package ipmi:dram!", "perf:package ipmi:dram", "ipmi:dram"},
		}, ""},

		"a meter of one kind is closed once a preferred one has read the kind": {"redfish=platform ipmi=platform", []step{
			{"redfish:platform! ipmi:platform", "ipmi:platform", "redfish:platform"},
			{"redfish:platform ipmi:platform", "redfish:platform", ""},
			{"redfish:platform! ipmi:platform", "redfish:platform", "redfish:platform"},
		}, "ipmi 2"},
		"a meter of cards is closed only once a card without an address is read": {"http lib=gpu hwmon", []step{
			{"http:gpu@1 lib:gpu@2 hwmon:gpu@3", "http:gpu@1 lib:gpu@2 hwmon:gpu@3", ""},
			{"http:gpu@1 http:gpu@a2 lib:gpu@2 hwmon:gpu@3", "http:gpu@1 http:gpu@a2", ""},
		}, "lib 2"},
		"cards of another meter take no other kind": {"lib cray model*", []step{
			{"lib:gpu@1 cray:gpu@a0 cray:platform cray:package model:dram", "lib:gpu@1 cray:platform cray:package", ""},
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, c.meters)
			for _, step := range c.steps {
				s.expect(step.shows, step.reports, step.failed)
				s.expect(step.shows, step.reports, step.failed)
			}
			s.closing.Wait()
			var closed []string
			for _, st := range s.Status() {
				if m := s.meters[st.Name]; m.closed > 0 {
					closed = append(closed, fmt.Sprint(st.Name, " ", m.reads))
				}
			}
			assert.Equal(t, c.closed, strings.Join(closed, ", "))
			assert.NoError(t, s.Close())
			for _, m := range s.meters {
				assert.Equal(t, 1, m.closed)
			}
		})
	}
}
