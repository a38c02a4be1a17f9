// SPDX-License-Identifier: Apache-2.0

// Package deploy holds the files that deploy the collector: manifests, chart values, a service, a Dockerfile. Its
// tests compare these files with each other; `make check-deploy` checks each with the tool that reads it.
// What must never be here: a privilege that docs/permissions.md does not name.
package deploy
