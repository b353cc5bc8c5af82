package main

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"
)

// The sizes of a plot, in pixels.
const (
	plotWidth = 860
	nameWidth = 170
	barWidth  = 430
	rowHeight = 22
	barHeight = 14
	margin    = 16
)

// style is the colours of plots, on light and on dark ground.
const style = `<style>
svg { font: 13px system-ui, sans-serif; background: #fff }
text { fill: #1f2328 } .title { font-size: 17px; font-weight: 600 } .group { font-weight: 600 }
.small { font-size: 11px; fill: #59636e } .end { text-anchor: end }
.floor { fill: #afb8c1 } .ours { fill: #1a7f37 } .peer { fill: #d4813a } line { stroke: #1f2328; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
svg { background: #0d1117 } text { fill: #e6edf3 } .small { fill: #9198a1 }
.floor { fill: #59636e } .ours { fill: #3fb950 } .peer { fill: #db8a48 } line { stroke: #e6edf3 } }
</style>
`

// plot writes a file named after the chapter. It has a bar for each contestant: the median time,
// with a line from quartile to quartile.
func (t *table) plot(dir, where string) error {
	var b strings.Builder
	y := margin + 14
	text := func(x, y int, class, s string) {
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" class=\"%s\">%s</text>\n", x, y, class, html.EscapeString(s))
	}

	text(margin, y, "title", t.title)
	y += 18
	text(margin, y, "small", "Shorter is better. Measured on "+where+".")

	for _, g := range t.groups {
		y += 34
		text(margin, y, "group", g.title)
		text(plotWidth-margin, y, "small end", "per "+strings.Split(g.unit, ";")[0])
		y += 8
		longest := 0.0
		for _, r := range g.rows {
			longest = max(longest, quantile(r.perOp, 0.75))
		}

		x := func(v float64) float64 { return margin + nameWidth + barWidth*v/longest }

		for _, r := range g.rows {
			class := "peer"
			switch {
			case strings.HasPrefix(r.name, floor):
				class = "floor"
			case strings.HasPrefix(r.name, ours):
				class = "ours"
			}

			middle := y + rowHeight/2
			text(margin+nameWidth-8, middle+4, "end", r.name)
			fmt.Fprintf(&b, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" class=\"%s\"/>\n",
				x(0), middle-barHeight/2, max(x(r.median())-x(0), 1), barHeight, class)
			fmt.Fprintf(&b, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>\n",
				x(quantile(r.perOp, 0.25)), x(quantile(r.perOp, 0.75)), middle, middle)
			text(margin+nameWidth+barWidth+10, middle+4, "", g.label(r))
			y += rowHeight
		}
	}

	y += margin
	svg := fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\">\n<title>%s</title>\n%s%s</svg>\n",
		plotWidth, y, plotWidth, y, html.EscapeString(t.title), style, b.String())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}

	return os.WriteFile(filepath.Join(dir, t.name+".svg"), []byte(svg), 0o644)
}

// label returns the time of a row, and how it compares.
func (g group) label(r *row) string {
	s := microseconds(r.median())
	if f := g.row(floor); f != nil && f != r {
		return fmt.Sprintf("%s, %.2f of the floor", s, r.against(f).median)
	}
	if o := g.row(ours); o != nil && o != r && r.name != floor {
		return fmt.Sprintf("%s, %.2f of ours", s, r.against(o).median)
	}
	return s
}
