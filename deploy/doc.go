// SPDX-License-Identifier: Apache-2.0

// Package deploy holds what the collector is deployed with: manifests, chart values, a service, a Dockerfile. Its
// tests say what these files must have in common; `make check-deploy` has each checked by the tool that reads it.
// What must never be here: a privilege that docs/permissions.md does not name.
package deploy
