package main

import (
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
)

// The JSON of ps. docs/zkr.md describes it: members may be added, and those that are here neither
// change nor go.
type (
	jsonPlace struct {
		Path       string          `json:"path"`
		Recipe     survey.Recipe   `json:"recipe"`
		Since      *time.Time      `json:"since,omitempty"`
		Permits    int             `json:"permits,omitempty"`
		Contenders []jsonContender `json:"contenders,omitempty"`
		Queue      *jsonQueue      `json:"queue,omitempty"`
		Done       int             `json:"done,omitempty"`
		Unknown    []jsonUnknown   `json:"unknown,omitempty"`
		Notes      []string        `json:"notes,omitempty"`
		Truncated  bool            `json:"truncated,omitempty"`
		Below      []jsonPlace     `json:"below,omitempty"`
	}

	jsonContender struct {
		Node    string         `json:"node"`
		State   survey.State   `json:"state"`
		Mode    string         `json:"mode,omitempty"`
		Library survey.Library `json:"library"`
		Session string         `json:"session,omitempty"`
		Token   int64          `json:"token,omitempty"`
		Since   time.Time      `json:"since"`
		Host    string         `json:"host,omitempty"`
		PID     int            `json:"pid,omitempty"`
		Program string         `json:"program,omitempty"`
		Orphan  string         `json:"orphan,omitempty"`
		content
	}

	jsonQueue struct {
		Length   int        `json:"length"`
		Reserved int        `json:"reserved"`
		Looked   int        `json:"looked"`
		Oldest   *time.Time `json:"oldest,omitempty"`
	}

	jsonUnknown struct {
		Node      string    `json:"node"`
		Ephemeral bool      `json:"ephemeral"`
		Since     time.Time `json:"since"`
	}
)

func placeJSON(p *survey.Place) jsonPlace {
	j := jsonPlace{
		Path: p.Path, Recipe: p.Recipe, Since: timeJSON(p.Since), Permits: p.Permits,
		Done: p.Done, Notes: p.Notes, Truncated: p.Truncated,
	}

	for _, c := range p.Contenders {
		contender := jsonContender{
			Node: c.Node, State: c.State, Mode: c.Mode, Library: c.Library, Session: sessionID(c.Session),
			Token: c.Token, Since: c.Since.UTC(), Host: c.Owner.Host, PID: c.Owner.PID, Program: c.Owner.Program,
			Orphan: c.Orphan,
		}
		if len(c.Data) > 0 {
			contender.content = contentOf(c.Data)
		}
		j.Contenders = append(j.Contenders, contender)
	}

	if e := p.Entries; e != nil {
		j.Queue = &jsonQueue{e.Length, e.Reserved, e.Looked, timeJSON(e.Oldest)}
	}

	for _, s := range p.Unknown {
		j.Unknown = append(j.Unknown, jsonUnknown{s.Node, s.Ephemeral, s.Since.UTC()})
	}

	for _, below := range p.Below {
		j.Below = append(j.Below, placeJSON(below))
	}
	return j
}

// timeJSON returns nil for the zero time.
func timeJSON(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}

	t = t.UTC()
	return &t
}
