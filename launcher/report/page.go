package report

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

var (
	//go:embed page/page.html
	pageHTML string
	//go:embed page/page.css
	pageCSS string
	//go:embed page/page.js
	pageJS string
)

// Write writes the page: one HTML file with its styles, its script and the report. The
// program's names stand in it only as JSON, in which <, > and & are escaped.
func (r *Report) Write(w io.Writer) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err = strings.NewReplacer("{{css}}", pageCSS, "{{js}}", pageJS, "{{data}}", string(data)).WriteString(w, pageHTML)
	return err
}
