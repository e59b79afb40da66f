__import__("numpy")
from gradewise.data.jets._card import Card
from gradewise.data.jets._file import File, Jets
from gradewise.data.jets._make import make
from gradewise.data.jets._select import Candidate, Generator
