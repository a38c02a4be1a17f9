// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"encoding/json"
	"errors"
)

// ReadReport returns the document in a page that WriteReport wrote.
func ReadReport(page []byte) (json.RawMessage, error) {
	_, text, found := bytes.Cut(page, []byte(`<script type="application/json" id="data">`))
	if !found {
		return nil, errors.New("the page has no data")
	}
	var content struct{ Data json.RawMessage }
	err := json.NewDecoder(bytes.NewReader(text)).Decode(&content)
	return content.Data, err
}
