// SPDX-License-Identifier: Apache-2.0

package extensioncheck

import (
	"fmt"
	"maps"
	"slices"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pipeline"
)

// Types of components of profiles pipelines.
const (
	profilerType = "profiling" // the receiver of the OpenTelemetry eBPF profiler
	profileType  = "energyprofile"
	spansType    = "energyspans"
)

// losesContext lists the processors that do not pass on the context of a batch.
var losesContext = []string{"batch"}

// foreignProfiles returns an error for each profiles pipeline with foreign CPU samples or foreign energy.
func foreignProfiles(all map[string]any) (errs []error) {
	pipelines, _ := at(all, "service", "pipelines").(map[string]any)
	senders := map[component.ID]string{}
	for _, name := range slices.Sorted(maps.Keys(pipelines)) {
		var id pipeline.ID
		if id.UnmarshalText([]byte(name)) != nil || id.Signal().String() != "profiles" {
			continue
		}
		of := pipelines[name]
		for _, err := range []error{checkSamples(all, of), checkEnergy(all, of), checkOnce(senders, name, of)} {
			if err != nil {
				errs = append(errs, fmt.Errorf("service::pipelines::%s: %w", name, err))
			}
		}
	}
	return errs
}

// checkSamples returns an error if energyprofile can receive CPU samples from a receiver other than the profiler.
func checkSamples(all map[string]any, of any) error {
	for _, id := range idsOf(at(of, "processors")) {
		if id.Type().String() != profileType || at(all, "processors", id.String(), "foreign_samples") == true {
			continue
		}
		for _, from := range idsOf(at(of, "receivers")) {
			if from.Type().String() != profilerType {
				return fmt.Errorf("receiver %q may receive samples of other processes, and %q divides energy among them: use only receivers of the type %s, "+
					"or set processors::%s::foreign_samples to true", from, id, profilerType, id)
			}
		}
	}
	return nil
}

// checkEnergy returns an error if energyspans cannot receive energy of energyprofile. It does not check pipelines that
// start with a connector, because connectors may pass on the context.
func checkEnergy(all map[string]any, of any) error {
	isSpans := func(id component.ID) bool { return id.Type().String() == spansType }
	exporters := idsOf(at(of, "exporters"))
	i := slices.IndexFunc(exporters, isSpans)
	if i < 0 {
		return nil
	}
	made := false
	for _, id := range idsOf(at(of, "processors")) {
		made = made || id.Type().String() == profileType
		if made && slices.Contains(losesContext, id.Type().String()) {
			return fmt.Errorf("%q counts only energy whose origin is in the pipeline's context, and processor %q does not pass on the context: "+
				"remove the processor, or put it before %s", exporters[i], id, profileType)
		}
	}
	connectors, _ := all["connectors"].(map[string]any)
	for _, from := range idsOf(at(of, "receivers")) {
		if _, ok := connectors[from.String()]; !made && !ok {
			return fmt.Errorf("%q counts only energy of %s, which is not among the processors", exporters[i], profileType)
		}
	}
	return nil
}

// checkOnce returns an error if energyspans gets energy from two pipelines. Each of them has an
// energyprofile of its own, even if the IDs are equal, which sends all energy. senders has the
// pipelines that were checked, by energyspans.
func checkOnce(senders map[component.ID]string, name string, of any) error {
	if !slices.ContainsFunc(idsOf(at(of, "processors")), func(id component.ID) bool { return id.Type().String() == profileType }) {
		return nil
	}
	for _, id := range idsOf(at(of, "exporters")) {
		if id.Type().String() != spansType {
			continue
		}
		if other, ok := senders[id]; ok {
			return fmt.Errorf("%q would count all energy twice: pipeline %s sends it as well", id, other)
		}
		senders[id] = name
	}
	return nil
}
