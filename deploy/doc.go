// SPDX-License-Identifier: Apache-2.0

// Package deploy contains the files that deploy the collector: manifests, chart values, a systemd
// unit, a Dockerfile and a Compose file. They grant no privilege that docs/permissions.md does not
// list. The tests compare the files with each other. `make check-deploy` checks each file with the
// tool that reads it.
package deploy
