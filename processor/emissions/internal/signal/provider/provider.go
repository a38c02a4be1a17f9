// SPDX-License-Identifier: Apache-2.0

// Package provider reads the carbon intensity of electricity from services and from files.
//
// Each provider is one file: its settings, which implement Settings, and its requests. To add a
// provider, copy ukcarbon.go and add it to emissions.IntensityConfig, its defaults and sources.
//
// All answers are untrusted: their sizes are limited, and an answer with one impossible value, of
// another place or in another unit is rejected as a whole.
package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

// Settings are the settings of a provider. If the type has a method Validate, confmap calls it.
type Settings interface {
	// Open returns the provider that valid settings describe. It sends no requests.
	Open(o *Opening) (*Source, error)
}

// The types of carbon intensities.
const (
	Average  = "average"
	Marginal = "marginal"
)

// Opening holds the collector's part of opening a provider.
type Opening struct {
	context.Context
	Host      component.Host
	Telemetry component.TelemetrySettings
	MaxAge    time.Duration // the setting max_age; 0 selects the default of the provider
}

// Source is an opened provider.
type Source struct {
	Provider signal.Provider
	Options  signal.Options
	Region   string // the provider's name of the region; empty if it has no regions
}

// localBackoff is the maximum time between two requests to a server or a file of the user that fail.
const localBackoff = time.Minute

// The errors of answers.
var (
	errTime  = errors.New("the answer has a time that cannot be read")
	errEmpty = errors.New("the answer has no value")
)

// decode decodes a document into v.
func decode(body []byte, v any) error {
	return (&fetch.Answer{Body: body}).JSON(v)
}

// rate returns the carbon intensity of a JSON number or of a string with a number.
func rate(value json.RawMessage, unit signal.Unit) (signal.Rate, error) {
	text, err := fetch.NumberText(value)
	if err != nil {
		return 0, err
	}
	return signal.Parse(text, unit)
}

// parseTime parses a time of RFC 3339 or one without seconds. It must contain its offset from UTC.
func parseTime(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04Z07:00"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errTime
}

// mismatch is the error for an answer that is not what was requested. It does not contain the
// server's text, which may repeat a secret.
func mismatch(what, want string) error {
	return fmt.Errorf("the answer is for another %s than %q", what, want)
}

// notEmpty returns an error if a setting is empty.
func notEmpty(setting, value string) error {
	if value == "" {
		return fmt.Errorf("%s: must not be empty", setting)
	}
	return nil
}
