// SPDX-License-Identifier: Apache-2.0

package calibration

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Wall is the record of a wall meter.
type Wall struct {
	Points  []Point
	Missing int // lines without a reading: empty, NaN
}

// The reasons for which ReadWall gives up.
var (
	errNoReadings = errors.New("no reading of a power, with its time")
	errBackwards  = errors.New("the time goes back")
)

// ReadWall reads a wall meter's record: a time and a power in watts on each line, separated by
// comma, semicolon or tab. Of more columns it takes those whose header says time or date, and
// power, watt, W or kW, else the first two. Times are as in RFC 3339, seconds or milliseconds of
// Unix, or date and time of day in the local zone, in one column or two. Lines before the first
// reading are headers. Empty lines and lines that begin with # are skipped. If columns are separated
// by semicolons or tabs, a comma may be the decimal point.
//
// A reading that is empty or not a number is missing. Anything else is an error that names its line.
func ReadWall(r io.Reader, local *time.Location) (Wall, error) {
	var w Wall
	c := columns{time: 0, power: -1, scale: 1, local: local}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(strings.TrimPrefix(lines.Text(), "\ufeff"))
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		p, err := c.parse(line)
		switch {
		case err != nil && len(w.Points) == 0 && w.Missing == 0:
			c.header(line)
			continue
		case err != nil:
			return w, fmt.Errorf("line %d: %w", n, err)
		case len(w.Points) > 0 && p.Time < w.Points[len(w.Points)-1].Time:
			return w, fmt.Errorf("line %d: %w", n, errBackwards)
		case math.IsNaN(p.Value):
			w.Missing++
		}
		w.Points = append(w.Points, p)
	}
	if err := lines.Err(); err != nil {
		return w, err
	}
	if len(w.Points) == w.Missing {
		return w, errNoReadings
	}
	return w, nil
}

// columns is where a line has its time and power.
type columns struct {
	time, power int // power is -1 for the first after the time
	scale       float64
	local       *time.Location
}

// split returns the fields of a line, with decimal points.
func split(line string) []string {
	for _, separator := range []string{";", "\t"} {
		if strings.Contains(line, separator) {
			fields := strings.Split(line, separator)
			for i, f := range fields {
				if fields[i] = strings.Trim(f, "\" "); decimalComma.MatchString(fields[i]) {
					fields[i] = strings.Replace(fields[i], ",", ".", 1)
				}
			}
			return fields
		}
	}
	fields := strings.Split(line, ",")
	for i, f := range fields {
		fields[i] = strings.Trim(f, "\" ")
	}
	return fields
}

var decimalComma = regexp.MustCompile(`^[-+]?\d+,\d+( ?[wW])?$`)

var (
	timeHeader  = regexp.MustCompile(`(?i)^(date|time|when)|time ?stamp|unix|epoch`)
	powerHeader = regexp.MustCompile(`(?i)watt|power|^(p|w)$|\[?\(?k?w\)?\]?$`)
	kilowatts   = regexp.MustCompile(`(?i)(^|[^a-z])kw([^a-z]|$)|kilowatt`)
)

// header takes the columns that a header names.
func (c *columns) header(line string) {
	fields := split(line)
	if i := slices.IndexFunc(fields, timeHeader.MatchString); i >= 0 {
		c.time = i
	}
	i := slices.IndexFunc(fields, func(f string) bool { return powerHeader.MatchString(f) && !timeHeader.MatchString(f) })
	if i < 0 {
		return
	}
	c.power, c.scale = i, 1
	if kilowatts.MatchString(fields[i]) {
		c.scale = 1000
	}
}

// parse returns the reading of a line, NaN where it is missing.
func (c *columns) parse(line string) (Point, error) {
	fields := split(line)
	if len(fields) <= c.time {
		return Point{}, fmt.Errorf("%q has no time", line)
	}
	at, next, err := c.parseTime(fields[c.time:])
	if err != nil {
		return Point{}, err
	}
	power := c.power
	if power < 0 {
		power = c.time + next
	}
	if power >= len(fields) {
		return Point{}, fmt.Errorf("%q has no power", line)
	}
	text := strings.TrimSpace(strings.TrimSuffix(strings.TrimSuffix(fields[power], "W"), "w"))
	if text == "" || strings.EqualFold(text, "nan") || text == "-" || strings.EqualFold(text, "null") {
		return Point{at, math.NaN()}, nil
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(value, 0) || value < 0 {
		return Point{}, fmt.Errorf("%q is not a power in watts", fields[power])
	}
	return Point{at, value * c.scale}, nil
}

var layouts = []string{
	time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05", "2006-01-02T15:04:05", "2006/01/02 15:04:05",
	"02.01.2006 15:04:05",
}

// The latest and earliest times in seconds of Unix: from 2001 to 2286.
const firstUnix, lastUnix = 1e9, 1e10

// parseTime returns the time that fields begin with, and how many of them it takes.
func (c *columns) parseTime(fields []string) (at float64, taken int, err error) {
	if n, err := strconv.ParseFloat(fields[0], 64); err == nil {
		for _, unit := range []float64{1, 1e3, 1e6, 1e9} {
			if n/unit >= firstUnix && n/unit < lastUnix {
				return n / unit, 1, nil
			}
		}
		return 0, 0, fmt.Errorf("%q is not a time of Unix", fields[0])
	}
	texts := []string{fields[0]}
	if len(fields) > 1 {
		texts = append(texts, fields[0]+" "+fields[1])
	}
	for i, text := range texts {
		for _, layout := range layouts {
			if t, err := time.ParseInLocation(layout, text, c.local); err == nil {
				return float64(t.UnixNano()) / 1e9, i + 1, nil
			}
		}
	}
	return 0, 0, fmt.Errorf("%q is not a time", fields[0])
}
