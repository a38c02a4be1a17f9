// SPDX-License-Identifier: Apache-2.0

// Package windows paces the attribution windows and reports collections that hang.
//
// A window ends when the metronome of the sampler beats, at each collection, and when a reader of
// the feed requests it (demand). ChooseLength returns the length of the windows. A window that ends
// before the previous one is attributed is missed: both are attributed together.
package windows
