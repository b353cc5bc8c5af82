package main

import "github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"

// The JSON of ps is that of package survey, with sessions in hexadecimal and data as text.
// docs/zkr.md describes it: members may be added, and those that are here neither change nor go.
type (
	jsonPlace struct {
		*survey.Place
		Contenders []jsonContender `json:"contenders,omitempty"`
		Unread     int             `json:"unread,omitempty"`
		Below      []jsonPlace     `json:"below,omitempty"`
	}

	jsonContender struct {
		survey.Contender
		Session string `json:"session,omitempty"`
		content
	}
)

func placeJSON(p *survey.Place) jsonPlace {
	j := jsonPlace{Place: p, Unread: len(p.Unread)}
	for _, c := range p.Contenders {
		contender := jsonContender{Contender: c, Session: sessionID(c.Session)}
		if len(c.Data) > 0 {
			contender.content = contentOf(c.Data)
		}
		j.Contenders = append(j.Contenders, contender)
	}
	for _, below := range p.Below {
		j.Below = append(j.Below, placeJSON(below))
	}
	return j
}
