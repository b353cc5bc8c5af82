package ui

import (
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
	maxShown = 50  // contenders of a row
	maxText  = 200 // bytes of a contender's data
)

// A row is what the page shows of one path. No text in it has a character that is not printable.
type row struct {
	ID         string        `json:"id"`
	Path       string        `json:"path"`
	Recipe     survey.Recipe `json:"recipe"`
	Since      int64         `json:"since,omitempty"` // in milliseconds, as all times here
	Permits    int           `json:"permits,omitempty"`
	Holding    int           `json:"holding"` // how many hold, are inside or are members
	Waiting    int           `json:"waiting"`
	Contenders []contender   `json:"contenders,omitempty"`
	More       int           `json:"more,omitempty"` // contenders that are not in Contenders
	Queue      *queueRow     `json:"queue,omitempty"`
	Missing    *missing      `json:"missing,omitempty"`
	Done       int           `json:"done,omitempty"`
	Unknown    []string      `json:"unknown,omitempty"`
	Notes      []string      `json:"notes,omitempty"`
	Trouble    bool          `json:"trouble,omitempty"` // there is an orphan, or a note
	Unread     bool          `json:"unread,omitempty"`  // it was not read lately: there are too many nodes
}

type contender struct {
	ID      string         `json:"id"`
	Name    string         `json:"name"` // in a few words
	Node    string         `json:"node"`
	State   survey.State   `json:"state"`
	Mode    string         `json:"mode,omitempty"`
	Library survey.Library `json:"library"`
	Session string         `json:"session,omitempty"`
	Token   int64          `json:"token,omitempty,string"` // too large for a number of JavaScript
	Since   int64          `json:"since"`
	Held    int64          `json:"held,omitempty"` // since when it holds; 0 if that is not known
	Asked   int64          `json:"asked,omitempty"`
	Label   string         `json:"label,omitempty"`
	Host    string         `json:"host,omitempty"`
	PID     int            `json:"pid,omitempty"`
	Program string         `json:"program,omitempty"`
	Data    string         `json:"data,omitempty"`
	Orphan  string         `json:"orphan,omitempty"`

	node  string // as it is
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

// missing is how many a double barrier waits for, and who of them took part in the round before.
type missing struct {
	Count int      `json:"count"`
	Names []string `json:"names,omitempty"`
}

// newRow describes a place.
func newRow(p *survey.Place) *row {
	r := &row{
		ID: id(p.Path), Path: plain.Line(p.Path), Recipe: p.Recipe, Since: millis(p.Since), Permits: p.Permits,
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
	}

	shown.Data = plain.Line(plain.Cut(string(c.Data), maxText))
	shown.Name = shown.name()
	if saysNoMore(c) {
		shown.Data = ""
	}
	return shown
}

// name says in a few words who a contender is.
func (c contender) name() string {
	switch {
	case c.Host != "" && c.PID != 0:
		return fmt.Sprintf("%s:%d", c.Host, c.PID)
	case c.Host != "":
		return c.Host
	case c.State == survey.Member && c.Library != survey.Kazoo: // whose members have names at random
		return c.Node
	}
	return plain.Cut(cmp.Or(c.Program, c.Data, c.Session, c.Node), 40)
}

// saysNoMore reports whether a contender's data say no more than its owner.
func saysNoMore(c survey.Contender) bool {
	var said map[string]json.RawMessage
	if json.Unmarshal(c.Data, &said) != nil {
		return string(c.Data) == c.Owner.Host
	}
	for _, known := range []string{"zkrecipes", "host", "pid", "program", "label", "held_since", "asked_back"} {
		delete(said, known)
	}
	return len(said) == 0
}

// id names what has this text in the page, which never gets the text itself.
func id(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// millis returns 0 for the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
