// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
)

// fill gives each text of a value another content, and each number one that is not 0.
func fill(v reflect.Value, prefix string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(prefix)
		return
	case reflect.Uint32:
		v.SetUint(7)
		return
	case reflect.Bool:
		v.SetBool(true)
		return
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), prefix)
		return
	}
	for i := range v.NumField() {
		fill(v.Field(i), prefix+"."+v.Type().Field(i).Name)
	}
}

func TestEveryEntityHasALine(t *testing.T) {
	names := map[string]bool{}
	for entity := range NumEntities {
		names[entity.String()] = true
		assert.NotEmpty(t, entity.String())
		assert.NotEmpty(t, entity.Attributes(), "%v", entity)
		assert.True(t, entity < ContainerEntity || entity.Attributes()[0].Distinguishes, "%v", entity)
	}
	assert.Len(t, names, int(NumEntities))
	assert.Len(t, ProcessEntity.Attributes(), len(Key{}), "a key has room for all that distinguishes")
}

func TestEveryFieldOfAWorkloadIsDescribed(t *testing.T) {
	var from, into Workload
	fill(reflect.ValueOf(&from).Elem(), "")
	for entity := ContainerEntity; entity < NumEntities; entity++ {
		entity.Describe(&into, &from)
	}
	assert.Equal(t, from, into)
}

func TestAnEntityDescribesOnlyItsPart(t *testing.T) {
	var from Workload
	fill(reflect.ValueOf(&from).Elem(), "")
	for entity, want := range map[Entity]Workload{
		ProcessEntity:     from,
		ContainerEntity:   {Container: from.Container, Pod: Pod{UID: from.Pod.UID}, Names: from.Names},
		PodEntity:         {Pod: from.Pod, Names: from.Names},
		VMEntity:          {VM: from.VM},
		SlurmStepEntity:   {Job: from.Job},
		SystemdUnitEntity: {Unit: from.Unit},
	} {
		var got Workload
		entity.Describe(&got, &from)
		assert.Equal(t, want, got, "%v", entity)
		assert.Equal(t, entity.Key(&from), entity.Key(&got), "%v", entity)
		assert.Equal(t, entity != ProcessEntity, entity.Of(&Owner{Workload: from}), "%v", entity)
		assert.False(t, entity.Of(&Owner{}), "%v", entity)
	}
	assert.True(t, ProcessEntity.Of(&Owner{Process: Process{PID: 1}}))
}

func TestWhatDoesNotDistinguishIsNoPartOfAKey(t *testing.T) {
	a := Workload{Container: Container{ID: "c"}, Pod: Pod{UID: "p"}, VM: VM{ID: "v"}, Job: SlurmStep{ID: "7", Step: "0"}, Unit: SystemdUnit{"u"}}
	b := a
	b.Container.Runtime, b.Pod.QoSClass, b.VM.Name, b.VM.Hypervisor, b.VM.CID = "docker", "Burstable", "web", "qemu", 3
	b.Names = &Names{Namespace: "shop", Pod: "web"}
	for entity := range NumEntities {
		assert.Equal(t, entity.Key(&a), entity.Key(&b), "%v", entity)
	}
	b.Pod.UID, b.Job.Step = "q", "1"
	for _, entity := range []Entity{ProcessEntity, ContainerEntity, PodEntity, SlurmStepEntity} {
		assert.NotEqual(t, entity.Key(&a), entity.Key(&b), "%v", entity)
	}
}

func TestNamesAreAwaitedByWhatHasThem(t *testing.T) {
	pending := Workload{Names: &Names{Pending: true}}
	namedPod := Workload{Names: &Names{Namespace: "shop", Pod: "web", Pending: true}}
	settled := Workload{Names: pending.Names.Settled()}
	for entity := range NumEntities {
		assert.Equal(t, entity == ContainerEntity || entity == PodEntity, entity.AwaitsNames(&pending), "%v", entity)
		assert.Equal(t, entity == ContainerEntity, entity.AwaitsNames(&namedPod), "%v", entity)
		assert.False(t, entity.AwaitsNames(&settled), "%v", entity)
		assert.False(t, entity.AwaitsNames(&Workload{}), "%v", entity)
	}
	assert.True(t, pending.Names.Pending, "Settled leaves the names as they are")
}
