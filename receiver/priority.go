// SPDX-License-Identifier: Apache-2.0

package energyreceiver

// priority is the scheduling priority of the windows' thread.
type priority string

const (
	normalPriority   priority = "normal"
	highPriority     priority = "high" // a lower nice value than the process has
	realTimePriority priority = "real-time"
)
