// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.uber.org/goleak"
)

// standIn is the environment variable that makes the test program a stand-in for the collector: its
// value says how the collector behaves.
const standIn = "ENERGY_TEST_COLLECTOR"

func TestMain(m *testing.M) {
	if behavior := os.Getenv(standIn); behavior != "" {
		collect(behavior)
		return
	}
	goleak.VerifyTestMain(m)
}

// collect sends samples of the process that started this one and of its other children, as the
// profiler does.
func collect(behavior string) {
	if behavior == "fails" {
		fmt.Fprintln(os.Stderr, `{"level":"info","msg":"Starting shutdown..."}`)
		fmt.Fprintln(os.Stderr, "Error: cannot start pipelines: failed to start \"profiling\" receiver: no BPF")
		os.Exit(1)
	}
	out := os.NewFile(3, "batches")
	for batches := 1; ; batches++ {
		var pids []string
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", os.Getppid()))
		for _, list := range lists {
			b, _ := os.ReadFile(list)
			pids = append(pids, strings.Fields(string(b))...)
		}
		samples := newSamples()
		samples.add(strconv.Itoa(os.Getppid()), "energy", time.Now())
		for _, pid := range pids {
			samples.add(pid, "busy", time.Now())
		}
		b, _ := (&pprofile.ProtoMarshaler{}).MarshalProfiles(samples.Profiles)
		if _, err := out.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)); err != nil {
			return
		}
		if behavior == "ends" && len(pids) > 1 {
			fmt.Fprintln(os.Stderr, "Error: out of memory")
			os.Exit(1)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// samples builds CPU profiles.
type samples struct{ pprofile.Profiles }

func newSamples() samples {
	s := samples{pprofile.NewProfiles()}
	d := s.Dictionary()
	d.StringTable().Append("", "samples", "count", "cpu", "nanoseconds")
	d.MappingTable().AppendEmpty()
	d.LocationTable().AppendEmpty()
	d.FunctionTable().AppendEmpty()
	d.LinkTable().AppendEmpty()
	d.AttributeTable().AppendEmpty()
	d.StackTable().AppendEmpty()
	return s
}

// add adds samples of a process in a function.
func (s samples) add(pid, function string, at ...time.Time) {
	d := s.Dictionary()
	d.StringTable().Append(function)
	d.FunctionTable().AppendEmpty().SetNameStrindex(int32(d.StringTable().Len() - 1))
	d.LocationTable().AppendEmpty().Lines().AppendEmpty().SetFunctionIndex(int32(d.FunctionTable().Len() - 1))
	s.addAt(pid, at...)
}

// addAt adds samples of a process at the last location.
func (s samples) addAt(pid string, at ...time.Time) pcommon.Map {
	d := s.Dictionary()
	d.StackTable().AppendEmpty().LocationIndices().Append(int32(d.LocationTable().Len() - 1))
	rp := s.ResourceProfiles().AppendEmpty()
	number, _ := strconv.ParseInt(pid, 10, 64)
	rp.Resource().Attributes().PutInt("process.pid", number)
	rp.Resource().Attributes().PutStr("process.executable.name", "p"+pid)
	of := rp.ScopeProfiles().AppendEmpty().Profiles().AppendEmpty()
	of.SampleType().SetTypeStrindex(1)
	of.SampleType().SetUnitStrindex(2)
	of.PeriodType().SetTypeStrindex(3)
	of.PeriodType().SetUnitStrindex(4)
	sample := of.Samples().AppendEmpty()
	sample.SetStackIndex(int32(d.StackTable().Len() - 1))
	for _, t := range at {
		sample.TimestampsUnixNano().Append(uint64(t.UnixNano()))
	}
	return rp.Resource().Attributes()
}
