// SPDX-License-Identifier: Apache-2.0

package oldconfig

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.yaml.in/yaml/v3"

	"github.com/energyreceiver/energyreceiver/internal/oneline"
	"github.com/energyreceiver/energyreceiver/internal/power/model/catalog"
)

// Convert converts the energy receivers and emissions processors of a YAML document to configuration version 1. The
// document is the configuration of a collector, a document that contains such configurations, such as Helm values, or
// the section of an energy receiver, with or without its ID. Convert preserves comments but not blank lines, and
// writes out the aliases of the components that it converts. notes lists the settings whose meaning changes or that
// could not be converted.
func Convert(document []byte) (converted []byte, notes []string, err error) {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	for decoder := yaml.NewDecoder(bytes.NewReader(document)); ; {
		var root yaml.Node
		switch err := decoder.Decode(&root); {
		case errors.Is(err, io.EOF):
			err := encoder.Close()
			return out.Bytes(), notes, err
		case err != nil:
			return nil, nil, err
		}
		if content := root.Content; len(content) == 1 && content[0].Kind == yaml.MappingNode {
			notes = append(notes, convertAll(content[0])...)
		}
		if err := encoder.Encode(&root); err != nil {
			return nil, nil, err
		}
	}
}

// section is the section of a component.
type section struct {
	id      string
	conf    *yaml.Node
	convert func(id string, conf *yaml.Node) (notes []string)
}

// convertAll converts the components of a document.
func convertAll(document *yaml.Node) (notes []string) {
	found := sectionsOf(document)
	if found == nil && child(document, "receivers") == nil {
		found = []section{{"energy", writeOut(document, Check), convertReceiver}}
	}
	for _, s := range found {
		notes = append(notes, s.convert(s.id, s.conf)...)
	}
	return notes
}

// sectionsOf returns the sections of the components of a document. It writes out the aliases of all sections, because a
// conversion changes the nodes to which they refer.
func sectionsOf(document *yaml.Node) (found []section) {
	var search func(n *yaml.Node, in string)
	search = func(n *yaml.Node, in string) {
		if n.Kind != yaml.MappingNode {
			for _, element := range n.Content {
				search(element, "")
			}
			return
		}
		for i := 0; i < len(n.Content); i += 2 {
			key, value := n.Content[i].Value, n.Content[i+1]
			add := func(check func(map[string]any) error, convert func(string, *yaml.Node) []string) {
				if n.Content[i+1] = writeOut(value, check); n.Content[i+1].Kind == yaml.MappingNode {
					found = append(found, section{key, n.Content[i+1], convert})
				}
			}
			isMapping := value.Kind == yaml.MappingNode || value.Kind == yaml.AliasNode && value.Alias.Kind == yaml.MappingNode
			switch {
			case isMapping && (in == "receivers" || n == document) && isOf(key, "energy"):
				add(Check, convertReceiver)
			case isMapping && (in == "processors" || n == document) && isOf(key, "emissions"):
				add(CheckEmissions, convertEmissions)
			default:
				search(value, key)
			}
		}
	}
	search(document, "")
	return found
}

// isOf reports whether a key is the ID of a component of the type.
func isOf(key, componentType string) bool {
	return key == componentType || strings.HasPrefix(key, componentType+"/")
}

// convertEmissions converts one emissions processor.
func convertEmissions(id string, conf *yaml.Node) []string {
	c := &converter{id: id, conf: conf}
	for _, old := range slices.Sorted(maps.Keys(Emissions)) {
		c.move(old, Emissions[old])
	}
	for _, old := range slices.Backward(slices.Sorted(maps.Keys(EmissionsRemoved))) { // the keys of a section before the section
		c.drop(old, EmissionsRemoved[old])
	}
	return c.notes
}

// converter converts one receiver.
type converter struct {
	id    string
	conf  *yaml.Node
	notes []string
}

func convertReceiver(id string, conf *yaml.Node) []string {
	c := &converter{id: id, conf: conf}
	c.meter()
	if child(conf, "<<") != nil {
		c.note("<<", "merged settings are not converted: write them out, and convert again")
	}
	c.move("powercap_path", "meters::powercap::path")
	c.move("ipmi::interval", "meters::ipmi::poll_interval")
	c.move("hypervisor::vsock_port", "meters::vsock::port")
	c.drop("guests", "add the extension energyguests with path and vsock::port, and name it in service::extensions")
	c.sensors()
	c.move("gpu::extensions", "meters::gpu::extensions")
	c.move("gpu::interval", "meters::gpu::poll_interval")
	c.renameInterval(child(conf, "redfish"))
	c.move("redfish", "meters::redfish")
	c.http()
	c.model()
	if window := child(conf, "sampling_interval"); isZero(window) {
		c.drop("sampling_interval", "a window of the length of collection_interval makes one window per collection")
	}
	c.move("sampling_interval", "window")
	c.series()
	c.take("zero_points")
	for _, removed := range []string{"phases", "metrics::system.phase.energy", "metrics::system.phase.time"} {
		c.drop(removed, "energy measure -node reports the whole machine by phase")
	}
	c.move("metrics::slurm.job.energy", "metrics::slurm.step.energy")
	c.move("metrics::slurm.job.power", "metrics::slurm.step.power")
	c.move("metrics::system.cpu.utilization", "metrics::system.cpu.busy")
	c.drop("metrics::system.energy.split.learned", "the internal metric otelcol_receiver_energy_static_power_state replaces it")
	c.move("resource_attributes::slurm.job.step", "resource_attributes::slurm.step.id")
	c.names()
	c.stateFile()
	c.staticPower()
	c.weight()
	c.idle()
	c.exclude()
	c.accurate()
	for _, setting := range []string{"rest_utilization", "base_time", "regression_samples", "memory_size"} {
		c.drop("attribution::"+setting, "it cannot be set any more")
	}
	for _, section := range []string{"ipmi", "hypervisor", "hwmon", "gpu"} {
		if left := child(conf, section); left != nil && len(left.Content) == 0 {
			c.take(section)
		}
	}
	return c.notes
}

func (c *converter) note(setting, format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf("%s: %s: %s", c.id, setting, fmt.Sprintf(format, args...)))
}

// child returns the value of a key of a mapping, or nil if there is none.
func child(mapping *yaml.Node, key string) *yaml.Node {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

// get returns the value of a setting, or nil if it is not set.
func (c *converter) get(path string) *yaml.Node {
	n := c.conf
	for key := range strings.SplitSeq(path, "::") {
		n = child(n, key)
	}
	return n
}

// text returns the scalar value of a setting, or an empty string if it is not set.
func (c *converter) text(path string) string {
	if n := c.get(path); n != nil && n.Kind == yaml.ScalarNode {
		return n.Value
	}
	return ""
}

// take removes a setting, and its section if that is then empty. at is the place of the setting in the receiver.
func (c *converter) take(path string) (key, value *yaml.Node, at int) {
	keys := strings.Split(path, "::")
	parents := []*yaml.Node{c.conf}
	for _, key := range keys[:len(keys)-1] {
		parents = append(parents, child(parents[len(parents)-1], key))
	}
	for i := len(keys) - 1; i >= 0; i-- {
		parent := parents[i]
		if child(parent, keys[i]) == nil || value != nil && len(child(parent, keys[i]).Content) > 0 {
			if value == nil {
				return nil, nil, -1
			}
			at = index(c.conf, keys[0])
			return key, value, at
		}
		at = index(parent, keys[i])
		k, v := parent.Content[at], parent.Content[at+1]
		parent.Content = slices.Delete(parent.Content, at, at+2)
		if value == nil {
			key, value = k, v
		} else {
			key.HeadComment = strings.TrimPrefix(k.HeadComment+"\n"+key.HeadComment, "\n")
		}
	}
	return key, value, at
}

// index returns the place of a key in a mapping.
func index(mapping *yaml.Node, key string) int {
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return i
		}
	}
	return len(mapping.Content)
}

// put sets a setting. If key is not nil, it is a key node with comments. A new section is inserted at the place at.
func (c *converter) put(path string, key, value *yaml.Node, at int) {
	keys := strings.Split(path, "::")
	section := c.conf
	for i, name := range keys {
		last := i == len(keys)-1
		next := child(section, name)
		if next != nil && !last {
			section, at = next, len(next.Content)
			continue
		}
		node := &yaml.Node{Kind: yaml.ScalarNode, Value: name}
		if last && key != nil {
			node.HeadComment, node.LineComment, node.FootComment = key.HeadComment, key.LineComment, key.FootComment
		}
		next = &yaml.Node{Kind: yaml.MappingNode, Style: c.conf.Style}
		if last {
			next = value
		}
		if at < 0 || at > len(section.Content) {
			at = len(section.Content)
		}
		section.Content = slices.Insert(section.Content, at, node, next)
		section, at = next, 0
	}
}

func (c *converter) move(from, to string) {
	if key, value, at := c.take(from); value != nil {
		c.put(to, key, value, at)
	}
}

// drop removes a setting and adds a note.
func (c *converter) drop(path, why string) {
	if _, value, _ := c.take(path); value != nil {
		c.note(path, "left out: %s", why)
	}
}

// accurate removes the preset accurate, whose rules are the default. Its windows were shorter.
func (c *converter) accurate() {
	if c.text("attribution::preset") != "accurate" {
		return
	}
	_, _, at := c.take("attribution::preset")
	const window = 100 * time.Millisecond
	interval, err := time.ParseDuration(c.text("collection_interval"))
	if c.get("window") == nil && (err != nil || interval > window) {
		c.put("window", nil, scalar("100ms"), at)
	}
}

func scalar(value string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: value} }

func quoted(value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Value: value, Style: yaml.DoubleQuotedStyle}
}

// mapping returns a mapping in flow style.
func mapping(content ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle, Content: content}
}

func isZero(n *yaml.Node) bool {
	return n != nil && slices.Contains([]string{"0", "0s", "0ms"}, n.Value)
}

func (c *converter) meter() {
	key, value, at := c.take("meter")
	if value == nil || value.Value == "auto" {
		return
	}
	use := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	if value.Value != "model" {
		use.Content = []*yaml.Node{scalar(value.Value)}
		c.drop("model", "a configuration with one meter had no use for it")
	}
	if strings.Contains(value.Value, "$") {
		c.note("meter", "check meters::use: a variable must have the name of a meter")
	}
	c.put("meters::use", key, use, at)
}

// renameInterval renames interval to poll_interval. An interval of 0 meant the default.
func (c *converter) renameInterval(section *yaml.Node) {
	interval := child(section, "interval")
	if interval == nil {
		return
	}
	at := index(section, "interval")
	if isZero(interval) {
		section.Content = slices.Delete(section.Content, at, at+2)
		return
	}
	section.Content[at].Value = "poll_interval"
}

func (c *converter) sensors() {
	key, list, at := c.take("hwmon::sensors")
	if list == nil {
		return
	}
	sensors := &yaml.Node{Kind: yaml.MappingNode}
	for _, s := range list.Content {
		part := func(key string) string {
			if n := child(s, key); n != nil {
				return n.Value
			}
			return ""
		}
		name := part("chip") + "/" + part("device") + "/" + part("sensor")
		if part("device") == "" && !strings.Contains(part("sensor"), "/") {
			name = part("chip") + "/" + part("sensor")
		}
		node := scalar(name)
		node.HeadComment = s.HeadComment
		zone := scalar(part("zone"))
		zone.LineComment = s.LineComment
		sensors.Content = append(sensors.Content, node, zone)
	}
	c.put("meters::hwmon::sensors", key, sensors, at)
}

func (c *converter) http() {
	key, list, at := c.take("http")
	if list == nil {
		return
	}
	for i, entry := range list.Content {
		if entry.Kind != yaml.MappingNode {
			c.note(fmt.Sprintf("http::%d", i), "left out: it is no map")
			continue
		}
		name := ""
		if n := child(entry, "name"); n != nil {
			at := index(entry, "name")
			name, entry.Content = n.Value, slices.Delete(entry.Content, at, at+2)
		}
		c.renameInterval(entry)
		id := "http/" + name
		if key := c.httpKey(name, i); key != id {
			id = key
			c.note("http::"+strconv.Itoa(i), "the name %q cannot be a key: hw.id changes to %s", name, strings.Replace(id, "/", ":", 1))
		}
		if i == 0 {
			entryKey := *key
			entryKey.Value = id
			c.put("meters::"+id, &entryKey, entry, at)
			continue
		}
		c.put("meters::"+id, nil, entry, at)
	}
}

// httpKey returns the key of the http section at index i of the former list, by its name if possible.
func (c *converter) httpKey(name string, i int) string {
	isKey := func(key string) bool { return new(component.ID).UnmarshalText([]byte(key)) == nil }
	id := "http/" + name
	if !isKey(id) {
		id = "http/" + strings.Map(func(r rune) rune {
			if !isKey("http/" + string(r)) {
				return '-'
			}
			return r
		}, cmp.Or(strings.TrimSpace(name), strconv.Itoa(i)))
	}
	key := id
	for n := 2; c.get("meters::"+key) != nil; n++ {
		key = fmt.Sprintf("%s-%d", id, n)
	}
	return key
}

func (c *converter) model() {
	m := c.get("model")
	if m == nil || m.Kind != yaml.MappingNode {
		return
	}
	key, auto, at := c.take("model::auto")
	_, shape, _ := c.take("model::shape")
	isAuto := auto != nil && auto.Value == "true"
	switch {
	case shape == nil || shape.Value == catalog.DefaultShape || shape.Value == "":
	case isAuto:
		c.note("model::shape", "left out: auto has the curve of the CPU")
	default:
		c.points(shape.Value)
	}
	if isAuto && c.get("model") == nil {
		c.put("model", key, scalar("auto"), at)
	}
}

// points replaces two powers and a shape by points.
func (c *converter) points(shape string) {
	idle, idleErr := strconv.ParseFloat("0"+c.text("model::idle_power"), 64)
	most, mostErr := strconv.ParseFloat(c.text("model::max_power"), 64)
	curve, err := catalog.Between(idle, most, shape)
	if err := errors.Join(idleErr, mostErr, err); err != nil {
		c.note("model::shape", "left out: the points of the curve are not known: %v", oneline.Text(err))
		return
	}
	at := index(c.conf, "model")
	c.take("model::idle_power")
	c.take("model::max_power")
	points := &yaml.Node{Kind: yaml.SequenceNode}
	for _, p := range curve {
		points.Content = append(points.Content, mapping(
			scalar("utilization"), scalar(strconv.FormatFloat(p.Utilization, 'g', 4, 64)), scalar("power"), scalar(strconv.FormatFloat(p.Watts, 'g', 4, 64))))
	}
	c.put("model::points", nil, points, at)
	c.get("model").Style = 0
}

func (c *converter) series() {
	for _, entity := range []string{"processes", "containers", "pods", "vms"} {
		if entity != "processes" {
			if _, least, _ := c.take(entity + "::min_energy"); least != nil && !isZero(least) {
				c.note(entity+"::min_energy", "left out: only processes have it")
			}
		}
		c.move(entity, "series::"+entity)
	}
}

func (c *converter) names() {
	key, from, at := c.take("names::from")
	if from != nil && from.Kind == yaml.SequenceNode {
		for _, source := range []string{"kubelet", "containerd", "cri-o", "podman", "docker"} {
			if !slices.ContainsFunc(from.Content, func(n *yaml.Node) bool { return n.Value == source }) {
				c.put("names::paths::"+source, key, quoted(""), at)
				key = nil
			}
		}
	}
	_, directories, at := c.take("names::directories")
	for i := 0; directories != nil && i+1 < len(directories.Content); i += 2 {
		source := directories.Content[i].Value
		if c.get("names::paths::"+source) != nil {
			c.note("names::directories::"+source, "left out: names::from does not list it")
			continue
		}
		c.put("names::paths::"+source, directories.Content[i], directories.Content[i+1], at)
	}
}

func (c *converter) stateFile() {
	key, file, at := c.take("attribution::state_file")
	switch {
	case file == nil:
	case c.get("storage") != nil:
		c.note("attribution::state_file", "left out: storage is set")
	default:
		c.note("attribution::state_file", "the state is in the directory of the file, under another name: training starts over")
		c.put("storage", key, scalar(filepath.Dir(file.Value)), at)
	}
}

// staticPower converts split, splits, static_power and regression_degree.
func (c *converter) staticPower() {
	cubic := c.text("attribution::regression_degree") == "3"
	c.take("attribution::regression_degree")
	name := func(model string) string {
		switch {
		case model == "learned":
			return "trained"
		case model == "regression" && cubic:
			return "regression_cubic"
		}
		return model
	}
	key, split, at := c.take("attribution::split")
	splitsKey, splits, splitsAt := c.take("attribution::splits")
	watts := c.get("attribution::static_power")
	isOld := watts != nil && watts.Kind == yaml.MappingNode && slices.ContainsFunc(watts.Content, func(n *yaml.Node) bool { return n.Tag == "!!int" || n.Tag == "!!float" })
	if isOld {
		k, _, a := c.take("attribution::static_power")
		if key == nil {
			key, at = k, a
		}
	} else {
		watts = nil
	}
	if key == nil {
		key, at = splitsKey, splitsAt
	}
	if split == nil && cubic && c.text("attribution::preset") == "kubewatt" {
		split = scalar("regression")
	}
	static := mapping()
	add := func(zone string, value *yaml.Node) { static.Content = append(static.Content, scalar(zone), value) }
	if split != nil && split.Value != "fixed" {
		add("all", scalar(name(split.Value)))
	}
	fixed := func(zone string, power *yaml.Node) {
		add(zone, mapping(scalar("model"), scalar("fixed"), scalar("power"), scalar(power.Value)))
	}
	for i := 0; splits != nil && i+1 < len(splits.Content); i += 2 {
		zone, model := splits.Content[i].Value, splits.Content[i+1].Value
		switch power := child(watts, zone); {
		case model != "fixed":
			add(zone, scalar(name(model)))
		case power == nil:
			c.note("attribution::splits::"+zone, "left out: its static_power is not set")
		default:
			fixed(zone, power)
		}
	}
	if split != nil && split.Value == "fixed" && child(watts, "gpu") == nil && child(splits, "gpu") == nil {
		if c.text("attribution::preset") != "kepler" {
			add("gpu", scalar("utilization")) // without a power, a GPU was split by utilization
		}
	}
	for i := 0; watts != nil && i+1 < len(watts.Content); i += 2 {
		zone := watts.Content[i].Value
		switch {
		case child(splits, zone) != nil:
			if child(splits, zone).Value != "fixed" {
				c.note("attribution::static_power::"+zone, "left out: it had no effect")
			}
		case split != nil && split.Value == "fixed":
			fixed(zone, watts.Content[i+1])
		default:
			c.note("attribution::static_power::"+zone, "left out: it had no effect")
		}
	}
	switch {
	case len(static.Content) == 0:
	case len(static.Content) == 2 && static.Content[0].Value == "all":
		c.put("attribution::static_power", key, static.Content[1], at)
	default:
		c.put("attribution::static_power", key, static, at)
	}
}

// weight converts key, keys and frequency_exponent.
func (c *converter) weight() {
	key, all, at := c.take("attribution::key")
	keysKey, keys, keysAt := c.take("attribution::keys")
	exponent := strings.TrimLeft(c.text("attribution::frequency_exponent"), "0") // 0 selected the preset's
	c.take("attribution::frequency_exponent")
	if key == nil {
		key, at = keysKey, keysAt
	}
	accurate := c.text("attribution::preset") == "accurate"
	if all == nil && accurate && exponent != "" && exponent != "2" {
		all = scalar("frequency")
		if child(keys, "dram") == nil {
			keys = mapping(append([]*yaml.Node{scalar("dram"), scalar("memory_cpu_time")}, contentOf(keys)...)...)
		}
	}
	used := false
	name := func(weight string) *yaml.Node {
		if weight != "frequency" {
			return scalar(weight)
		}
		used = true
		switch {
		case exponent == "2" || exponent == "" && accurate:
			weight = "frequency_squared"
		case exponent == "3":
			weight = "frequency_cubed"
		}
		return scalar(weight)
	}
	weight := mapping()
	if all != nil {
		weight.Content = append(weight.Content, scalar("all"), name(all.Value))
	}
	for i := 0; i+1 < len(contentOf(keys)); i += 2 {
		weight.Content = append(weight.Content, keys.Content[i], name(keys.Content[i+1].Value))
	}
	if exponent != "" && !used && !accurate {
		c.note("attribution::frequency_exponent", "left out: it had no effect")
	}
	switch {
	case len(weight.Content) == 0:
	case len(weight.Content) == 2 && all != nil:
		c.put("attribution::weight", key, weight.Content[1], at)
	default:
		c.put("attribution::weight", key, weight, at)
	}
}

func contentOf(n *yaml.Node) []*yaml.Node {
	if n == nil {
		return nil
	}
	return n.Content
}

// idle converts idle_among and cpu_weight.
func (c *converter) idle() {
	key, among, at := c.take("attribution::idle_among")
	_, formula, _ := c.take("attribution::cpu_weight")
	idle, preset := c.text("attribution::idle"), c.text("attribution::preset")
	if idle == "" && (preset == "kepler_0_9" || preset == "kavanagh") {
		idle = "equal"
	}
	set := func(value string) {
		if n := c.get("attribution::idle"); n != nil {
			n.Value = value
			return
		}
		c.put("attribution::idle", key, scalar(value), at)
	}
	switch {
	case idle == "equal" && (among == nil && preset == "kavanagh" || among != nil && among.Value == "containers"):
		if preset != "kavanagh" || c.get("attribution::idle") != nil {
			set("equal_containers")
		}
	case idle == "equal" && among != nil && preset == "kavanagh":
		set("equal")
	case among != nil && idle != "equal":
		c.note("attribution::idle_among", "left out: it had no effect")
	}
	switch {
	case formula == nil || formula.Value != "linear":
	case idle == "requested":
		set("requested_linear")
	default:
		c.note("attribution::cpu_weight", "left out: it had no effect")
	}
}

// exclude converts container_id and pod_uid.
func (c *converter) exclude() {
	for _, setting := range []string{"container_id", "pod_uid"} {
		path := "attribution::exclude::" + setting
		key, filters, at := c.take(path)
		for i, filter := range contentOf(filters) {
			id := child(filter, "strict")
			if id == nil {
				c.note(fmt.Sprintf("%s::%d", path, i), "left out: write a pattern of attribution::exclude::cgroup, which matches from the root of the path on")
				continue
			}
			pattern := ".*/[^/]*" + strings.ReplaceAll(id.Value, "-", "[-_]") + "[^/]*(/.*)?$"
			c.note(fmt.Sprintf("%s::%d", path, i), "the pattern of attribution::exclude::cgroup matches any path with the ID: begin it with the path that only the runtime can create")
			list := c.get("attribution::exclude::cgroup")
			if list == nil {
				list = &yaml.Node{Kind: yaml.SequenceNode}
				c.put("attribution::exclude::cgroup", key, list, at)
			}
			list.Content = append(list.Content, mapping(scalar("regexp"), quoted(pattern)))
		}
	}
}
