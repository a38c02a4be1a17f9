// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/csv"
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

// readWall reads the file of a wall meter: a time and a power in watts on each line, separated by
// comma, semicolon or tab. The power is in the first column whose header has power, watt, W or kW, or
// else in the first column after the time. Times are as in RFC 3339, seconds or milliseconds
// of Unix, or date and time of day in the local zone, in one column or two. Lines before the first
// reading are headers. Lines that begin with # are comments. Between semicolons or tabs, a comma may
// be the decimal point.
//
// A reading that is empty or not a number is missing: NaN. Other errors name their line.
func readWall(data []byte, local *time.Location) (points []point, missing int, err error) {
	text := strings.TrimSpace(strings.TrimPrefix(string(data), "\ufeff"))
	lines := csv.NewReader(strings.NewReader(text))
	lines.Comma, lines.Comment, lines.FieldsPerRecord, lines.LazyQuotes = separator(text), '#', -1, true
	c := columns{power: -1, scale: 1, local: local}
	for {
		fields, err := lines.Read()
		switch {
		case errors.Is(err, io.EOF) && len(points) == missing:
			return nil, 0, errors.New("no line with a time and a power")
		case errors.Is(err, io.EOF):
			return points, missing, nil
		case err != nil:
			return nil, 0, err
		}
		for i := range fields {
			if fields[i] = strings.TrimSpace(fields[i]); lines.Comma != ',' {
				fields[i] = decimalComma.ReplaceAllString(fields[i], "$1.$2")
			}
		}
		p, err := c.parse(fields)
		if err != nil && len(points) == 0 {
			c.header(fields)
			continue
		}
		if err == nil && len(points) > 0 && p.Time < points[len(points)-1].Time {
			err = errors.New("the time is before the previous one")
		}
		if err != nil {
			n, _ := lines.FieldPos(0)
			return nil, 0, fmt.Errorf("line %d: %w", n, err)
		}
		if points = append(points, p); math.IsNaN(p.Value) {
			missing++
		}
	}
}

// separator returns the separator of the columns, by the last line.
func separator(text string) rune {
	line := text[strings.LastIndexByte(text, '\n')+1:]
	if i := strings.IndexAny(line, ";\t"); i >= 0 {
		return rune(line[i])
	}
	return ','
}

// columns is the format of the lines. power is the index of the power, -1 for the first column after
// the time.
type columns struct {
	power int
	scale float64
	local *time.Location
}

var (
	decimalComma = regexp.MustCompile(`^([-+]?\d+),(\d+)`)
	powerHeader  = regexp.MustCompile(`(?i)watt|power|^(p|w)$|\[?\(?k?w\)?\]?$`)
	kilowatts    = regexp.MustCompile(`(?i)(^|[^a-z])kw([^a-z]|$)|kilowatt`)
	missingValue = regexp.MustCompile(`(?i)^(|-|nan|null)$`)
)

// header sets the columns that a header line names.
func (c *columns) header(fields []string) {
	if i := slices.IndexFunc(fields, powerHeader.MatchString); i >= 0 {
		c.power, c.scale = i, 1
		if kilowatts.MatchString(fields[i]) {
			c.scale = 1000
		}
	}
}

// mostWatts is the limit of a power.
const mostWatts = 1e9

// parse returns the reading of a line. Its value is NaN if the reading is missing.
func (c *columns) parse(fields []string) (point, error) {
	at, after := c.time(fields)
	power := c.power
	if power < 0 {
		power = after
	}
	if at == 0 || power >= len(fields) {
		return point{}, fmt.Errorf("%q is not a time and a power", fields)
	}
	text := strings.TrimSpace(strings.TrimRight(fields[power], "wW"))
	if missingValue.MatchString(text) {
		return point{at, math.NaN()}, nil
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || !(value >= 0 && value*c.scale <= mostWatts) {
		return point{}, fmt.Errorf("%q is not a power in watts", fields[power])
	}
	return point{at, value * c.scale}, nil
}

var layouts = []string{
	"2006-01-02T15:04:05Z07:00", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05",
	"2006-01-02T15:04:05", "2006/01/02 15:04:05", "02.01.2006 15:04:05",
}

// Limits of Unix times in seconds, from 2001 to 2286.
const firstUnix, lastUnix = 1e9, 1e10

// time returns the time in one or two of the fields, 0 without a time. after is the index of the
// field after it.
func (c *columns) time(fields []string) (at float64, after int) {
	for i, field := range fields {
		if n, err := strconv.ParseFloat(field, 64); err == nil {
			for _, unit := range []float64{1, 1e3, 1e6, 1e9} {
				if n/unit >= firstUnix && n/unit < lastUnix {
					return n / unit, i + 1
				}
			}
		}
		for after := i + 1; after <= min(i+2, len(fields)); after++ {
			for _, layout := range layouts {
				if t, err := time.ParseInLocation(layout, strings.Join(fields[i:after], " "), c.local); err == nil {
					return float64(t.UnixNano()) / 1e9, after
				}
			}
		}
	}
	return 0, 0
}
