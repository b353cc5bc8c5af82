package ui

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/plain"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
)

const (
	maxShown = 50  // the most contenders of a row
	maxText  = 200 // the most bytes of a text
)

// A row is the part of the page for a path. All its characters are printable.
type row struct {
	ID         string        `json:"id"`
	Path       string        `json:"path"`
	Recipe     survey.Recipe `json:"recipe"`
	Use        string        `json:"use,omitempty"`   // of a lock
	Since      int64         `json:"since,omitempty"` // in milliseconds (like all times here)
	Permits    int           `json:"permits,omitempty"`
	Holding    int           `json:"holding"` // the number of holders or members
	Waiting    int           `json:"waiting"`
	Contenders []contender   `json:"contenders,omitempty"`
	More       int           `json:"more,omitempty"` // the number of contenders that are not in Contenders
	Queue      *queueRow     `json:"queue,omitempty"`
	Missing    *missing      `json:"missing,omitempty"`
	Done       int           `json:"done,omitempty"`
	Unknown    []string      `json:"unknown,omitempty"`
	Notes      []string      `json:"notes,omitempty"`
	Trouble    bool          `json:"trouble,omitempty"` // there is an orphan, or a note
	Unread     bool          `json:"unread,omitempty"`  // the last look did not read it (too many nodes)

	path    string // unescaped
	json    []byte
	version int64 // of its last change
}

type contender struct {
	ID      string         `json:"id"`
	Name    string         `json:"name"` // the owner in a few words
	Node    string         `json:"node"`
	State   survey.State   `json:"state"`
	Mode    string         `json:"mode,omitempty"`
	Library survey.Library `json:"library"`
	Session string         `json:"session,omitempty"`
	Token   int64          `json:"token,omitempty,string"` // JavaScript's numbers are too small for it
	Since   int64          `json:"since"`
	Held    int64          `json:"held,omitempty"` // when it began to hold; 0 if unknown
	Asked   int64          `json:"asked,omitempty"`
	Label   string         `json:"label,omitempty"`
	Host    string         `json:"host,omitempty"`
	PID     int            `json:"pid,omitempty"`
	Program string         `json:"program,omitempty"`
	Data    string         `json:"data,omitempty"`
	Orphan  string         `json:"orphan,omitempty"`

	node  string // unescaped
	since time.Time
}

type queueRow struct {
	Length   int     `json:"length"`
	Reserved int     `json:"reserved"`
	Looked   int     `json:"looked"`
	Oldest   int64   `json:"oldest,omitempty"`
	In       float64 `json:"in"` // elements a second
	Out      float64 `json:"out"`
}

// missing says how many members a double barrier waits for, and who of them was in the round
// before.
type missing struct {
	Count int      `json:"count"`
	Names []string `json:"names,omitempty"`
}

// newRow returns the row of a place.
func newRow(p *survey.Place) *row {
	r := &row{
		ID: id(p.Path), Path: plain.Line(p.Path), path: p.Path, Recipe: p.Recipe, Use: p.Use, Since: millis(p.Since), Permits: p.Permits,
		Holding: p.Holders(), Waiting: p.Waiters(), More: p.More, Done: p.Done,
	}

	for _, c := range p.Contenders {
		r.Trouble = r.Trouble || c.Orphan != ""
		if len(r.Contenders) < maxShown {
			r.Contenders = append(r.Contenders, newContender(c))
		} else {
			r.More++
		}
	}

	if e := p.Entries; e != nil {
		r.Queue = &queueRow{Length: e.Length, Reserved: e.Reserved, Looked: e.Looked, Oldest: millis(e.Oldest)}
	}

	for _, u := range p.Unknown[:min(len(p.Unknown), maxShown)] {
		r.Unknown = append(r.Unknown, plain.Line(u.Node))
	}

	if more := len(p.Unknown) - len(r.Unknown); more > 0 {
		r.Unknown = append(r.Unknown, fmt.Sprintf("… %d more", more))
	}

	if n := len(p.Unread); n > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d nodes below were not read, so what they hold is unknown: see --nodes", n))
	}

	for _, note := range p.Notes {
		r.Notes = append(r.Notes, plain.Line(note))
	}

	r.Trouble = r.Trouble || len(r.Notes)+len(p.Unknown) > 0 && p.More == 0
	return r
}

func newContender(c survey.Contender) contender {
	shown := contender{
		ID: id(fmt.Sprint(c.Node, "\x00", c.Token, c.Since.UnixMilli())), State: c.State, Session: plain.Session(c.Session),
		Node: plain.Line(plain.Cut(c.Node, maxText)), Mode: plain.Line(plain.Cut(c.Mode, maxText)),
		Library: c.Library, Token: c.Token, Since: millis(c.Since), Held: millis(c.Held), Asked: millis(c.Owner.AskedBack), Label: plain.Line(c.Owner.Label), Host: plain.Line(c.Owner.Host), PID: c.Owner.PID,
		Program: plain.Line(c.Owner.Program), Orphan: plain.Line(c.Orphan), node: c.Node, since: c.Since,
		Data: plain.Line(plain.Cut(string(c.Data), maxText)),
	}

	// The name can come from the data, so repeated data goes only afterwards.
	shown.Name = shown.name()
	if saysNoMore(c) {
		shown.Data = ""
	}
	return shown
}

// name returns a contender's owner in a few words.
func (c contender) name() string {
	switch {
	case c.Host != "" && c.PID != 0:
		return fmt.Sprintf("%s:%d", c.Host, c.PID)
	case c.Host != "":
		return c.Host
	case c.State == survey.Member && c.Library != survey.Kazoo: // kazoo's names are random
		return c.Node
	}
	return plain.Cut(cmp.Or(c.Program, c.Data, c.Session, c.Node), 40)
}

// saysNoMore reports whether a contender's data has nothing but its owner.
func saysNoMore(c survey.Contender) bool {
	var said struct {
		Version int `json:"zkrecipes"`
		survey.Owner
	}

	// Other members are worth showing.
	data := json.NewDecoder(bytes.NewReader(c.Data))
	data.DisallowUnknownFields()
	return data.Decode(&said) == nil || string(c.Data) == c.Owner.Host
}

// id returns an ID for a text, so that the page never gets the text itself.
func id(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// millis returns milliseconds, or 0 for the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
