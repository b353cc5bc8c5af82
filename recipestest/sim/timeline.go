package sim

import (
	"cmp"
	"flag"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// draw writes the timeline.
func (f *Failure) draw(t *testing.T) {
	name := fmt.Sprintf("%s-%d.html", strings.ReplaceAll(t.Name(), "/", "-"), f.Seed)
	dir, err := directory(t)
	if err == nil {
		f.Timeline = filepath.Join(dir, name)
		err = os.WriteFile(f.Timeline, []byte(f.html()), 0o644)
	}

	if err != nil {
		f.Timeline = err.Error()
	}
}

// directory returns the directory for timelines.
func directory(t testing.TB) (string, error) {
	if *flagOut != "" {
		return *flagOut, os.MkdirAll(*flagOut, 0o755)
	}

	keeps := flag.Lookup("test.artifacts") // since Go 1.26; without it that directory is temporary
	if a, ok := t.(interface{ ArtifactDir() string }); ok && keeps != nil && keeps.Value.String() == "true" {
		return a.ArtifactDir(), nil
	}

	dir := filepath.Join(os.TempDir(), "sim")
	return dir, os.MkdirAll(dir, 0o755)
}

// Sizes of a timeline, in pixels.
const (
	margin = 90
	width  = 1400
	bar    = 16 // the height of one bar
	gap    = 14 // between lanes
)

const style = `<!doctype html><meta charset="utf-8"><title>%s</title><style>
body { font: 14px sans-serif; margin: 2em } pre { white-space: pre-wrap; background: #f6f6f6; padding: 1em }
svg { font: 11px sans-serif; background: #fff; border: 1px solid #ddd }
.fault { fill: #d33; fill-opacity: .25 } .strike { stroke: #d33; stroke-width: 2 }
.held { fill: #3a7; fill-opacity: .8 } .lost { fill: #e90; fill-opacity: .8 } .lane, .tick { stroke: #ddd }
.note { fill: #06c } text { dominant-baseline: middle }
</style>
`

// html returns a page with a lane for the server and for each client. Time goes from left to right.
func (f *Failure) html() string {
	f.record.mu.Lock()
	defer f.record.mu.Unlock()

	var b, svg strings.Builder
	title := html.EscapeString(fmt.Sprintf("%s, seed %d", f.test, f.Seed))
	fmt.Fprintf(&b, style, title)
	fmt.Fprintf(&b, "<h1>%s</h1><p>Green was held until its release, orange until it was lost or failed. Red is a fault. Point at anything to read more.</p>\n", title)
	total := f.end()
	x := func(at time.Duration) float64 {
		return margin + float64(at)/float64(total)*(width-margin-10)
	}

	y := 24
	for _, lane := range f.lanes {
		rows := f.lane(&svg, lane, x, y)
		svg.WriteString(fmt.Sprintf(`<text x="4" y="%d">%s</text>`, y+bar/2, html.EscapeString(lane)))
		y += rows*(bar+2) + gap
		svg.WriteString(fmt.Sprintf(`<line class="lane" x1="0" x2="%d" y1="%d" y2="%d"/>`+"\n", width, y-gap/2, y-gap/2))
	}

	for at, step := time.Duration(0), tick(total); at <= total; at += step {
		fmt.Fprintf(&svg, `<line class="tick" x1="%[1]f" x2="%[1]f" y1="16" y2="%[2]d"/><text x="%[1]f" y="8">%[3]v</text>`+"\n", x(at), y, at)
	}

	fmt.Fprintf(&b, `<svg width="%d" height="%d">%s</svg><pre>%s</pre>`+"\n", width, y, svg.String(), html.EscapeString(f.String()))
	for _, lane := range f.lanes {
		if packets := f.packets[lane]; packets != "" {
			fmt.Fprintf(&b, "<h2>Packets of %s</h2><pre>%s</pre>\n", lane, html.EscapeString(packets))
		}
	}

	return b.String()
}

// end returns when the last thing on the timeline ends.
func (f *Failure) end() time.Duration {
	end := time.Millisecond
	for _, s := range f.record.spans {
		end = max(end, s.to)
	}

	for _, fault := range f.record.faults {
		end = max(end, fault.At)
	}

	return end
}

// tick returns the time between two marks.
func tick(total time.Duration) time.Duration {
	for _, step := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 5 * time.Second} {
		if total/step <= 30 {
			return step
		}
	}
	return total / 20
}

// lane draws one lane, and returns how many rows of bars it needs.
func (f *Failure) lane(svg *strings.Builder, lane string, x func(time.Duration) float64, y int) int {
	spans := slices.DeleteFunc(slices.Clone(f.record.spans), func(s span) bool { return s.lane != lane })
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var ends []time.Duration // of the last bar in each row
	shapes := ""
	for _, s := range spans {
		row := slices.IndexFunc(ends, func(end time.Duration) bool { return end <= s.from })
		if row < 0 {
			row, ends = len(ends), append(ends, 0)
		}
		ends[row] = s.to
		class := "held"
		if s.lost {
			class = "lost"
		}
		text := html.EscapeString(s.text)
		top := y + row*(bar+2)
		shapes += fmt.Sprintf(`<rect class="%s" x="%f" y="%d" width="%f" height="%d"><title>%s, %v to %v</title></rect><text x="%f" y="%d">%s</text>`+"\n",
			class, x(s.from), top, max(2, x(s.to)-x(s.from)), bar, text, s.from, s.to, x(s.from)+3, top+bar/2, text)
	}

	rows := max(1, len(ends))
	for _, fault := range f.record.faults {
		if fault.victim() != lane {
			continue
		}
		end := fault.At
		if slices.Contains(lasting, fault.Kind) {
			end += fault.Lasts
		}
		title := html.EscapeString(strings.TrimSpace(fault.String()))
		fmt.Fprintf(svg, `<g><title>%s</title><rect class="fault" x="%f" y="%d" width="%f" height="%d"/><line class="strike" x1="%[2]f" x2="%[2]f" y1="%[3]d" y2="%[6]d"/><text x="%[2]f" y="%[7]d" fill="#d33">%[8]s</text></g>`+"\n",
			title, x(fault.At), y-4, min(max(3, x(end)-x(fault.At)), width-x(fault.At)), rows*(bar+2)+4, y+rows*(bar+2), y-6, fault.Kind)
	}

	svg.WriteString(shapes)
	for _, n := range f.record.notes {
		if n.lane == lane {
			fmt.Fprintf(svg, `<circle class="note" cx="%f" cy="%d" r="4"><title>%v: %s</title></circle>`+"\n", x(n.at), y+bar/2, n.at, html.EscapeString(n.text))
		}
	}

	return rows
}
