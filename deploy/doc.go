// SPDX-License-Identifier: Apache-2.0

// Package deploy holds the files that deploy the collector: manifests, chart values, a service, a Dockerfile, a
// Compose file. They grant no privilege that docs/permissions.md does not list. The tests compare the files with each
// other; `make check-deploy` checks each with the tool that reads it.
package deploy
