package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The sizes of a plot, in pixels.
const (
	plotWidth  = 860
	plotHeight = 240
	margin     = 60
)

const style = `<style>
svg { font: 13px system-ui, sans-serif; background: #fff } text { fill: #1f2328 }
polyline { fill: none; stroke: #1a7f37; stroke-width: 1.5 } .axis { stroke: #59636e } .piece { stroke: #afb8c1 }
@media (prefers-color-scheme: dark) { svg { background: #0d1117 } text { fill: #e6edf3 } polyline { stroke: #3fb950 } }
</style>
`

// plotAll writes a plot of each quantity over all pieces, from 0 to its maximum.
func plotAll(dir string, samples []sample) error {
	if len(samples) == 0 {
		return nil
	}
	for i, q := range quantities {
		if err := os.WriteFile(filepath.Join(dir, q.name+".svg"), []byte(plot(q, i, samples)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// plot draws a quantity, whose number in each sample is i.
func plot(q quantity, i int, samples []sample) string {
	longest, largest := samples[len(samples)-1].time, 0.0
	for _, s := range samples {
		largest = max(largest, s.values[i])
	}
	x := func(at time.Duration) float64 { return margin + (plotWidth-2*margin)*float64(at)/float64(longest) }
	y := func(v float64) float64 { return plotHeight - margin - (plotHeight-2*margin)*v/max(largest, 1e-9) }

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img">`+"\n<title>%s</title>\n%s",
		plotWidth, plotHeight, q.name, style)
	line := func(class string, x1, y1, x2, y2 float64) {
		fmt.Fprintf(&b, `<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", class, x1, y1, x2, y2)
	}
	text := func(x, y float64, anchor, s string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, s)
	}

	text(margin, margin/2, "start", strings.TrimSpace(q.name+" "+q.unit))
	text(margin-6, y(0)+4, "end", "0")
	text(margin-6, y(largest)+4, "end", fmt.Sprintf("%.4g", largest))
	text(plotWidth-margin, plotHeight-margin/2, "end", fmt.Sprintf("%.1f minutes", longest.Minutes()))
	line("axis", margin, y(0), plotWidth-margin, y(0))
	line("axis", margin, y(0), margin, y(largest))
	for piece := range piecesOf(samples) {
		if piece[0].piece != samples[0].piece {
			line("piece", x(piece[0].time), y(0), x(piece[0].time), y(largest))
		}
		b.WriteString(`<polyline points="`)
		for _, s := range piece {
			fmt.Fprintf(&b, "%.1f,%.1f ", x(s.time), y(s.values[i]))
		}
		b.WriteString("\"/>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}
