// SPDX-License-Identifier: Apache-2.0

// Package deploy contains the files that deploy the collector: manifests, a chart, a systemd unit,
// configurations of images and a Compose file. They grant no privilege that docs/permissions.md does not
// list. The tests compare the files with each other. `make check-deploy` checks each file with the
// tool that reads it.
package deploy
