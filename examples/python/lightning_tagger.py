"""Training with Lightning: checkpoints, resuming, validation in inference mode, and several processes.

    python lightning_tagger.py --epochs 3 --folder run
    python lightning_tagger.py --epochs 6 --folder run --resume
    python lightning_tagger.py --epochs 3 --folder run2 --processes 2

An L-GATr tells jets of two masses apart. Operators need nothing special: inference mode, automatic mixed precision and
``DistributedDataParallel`` see ordinary modules.
"""

import argparse
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from gradewise.torch.lgatr import LGATr, embed_vector, extract_scalar


class Tagger(lightning.LightningModule):
    """An L-GATr with one logit for each jet."""

    def __init__(self, width=4, blocks=1, rate=3e-3):
        super().__init__()
        self.save_hyperparameters()
        options = {"attention": {"num_heads": 2}, "mlp": {}}
        self.network = LGATr(blocks, 1, 1, width, 0, 0, 2 * width, **options)

    def forward(self, momenta):
        """Logits ``[jets]`` of momenta ``[jets, particles, 4]``."""
        multivectors, _ = self.network(embed_vector(momenta)[:, :, None])
        return extract_scalar(multivectors).mean(dim=(1, 2, 3))

    def training_step(self, batch, index):
        momenta, labels = batch
        return binary_cross_entropy_with_logits(self(momenta), labels)

    def validation_step(self, batch, index):
        momenta, labels = batch
        self.log("valid", binary_cross_entropy_with_logits(self(momenta), labels), sync_dist=True)

    def configure_optimizers(self):
        # Gradients that are 0 by a symmetry are roundings: with a smaller ε Adam takes whole steps along them.
        return torch.optim.Adam(self.parameters(), self.hparams.rate, eps=1e-5)


def jets(count, seed):
    """Momenta ``[count, 6, 4]`` of particles with mass 0.1 or 0.8, and which."""
    generator = torch.Generator().manual_seed(seed)
    momenta = torch.randn(count, 6, 3, generator=generator)
    labels = torch.randint(0, 2, (count,), generator=generator).float()
    masses = 0.1 + 0.7 * labels[:, None, None]
    energies = (momenta.square().sum(-1, keepdim=True) + masses**2).sqrt()
    return TensorDataset(torch.cat([energies, momenta], -1), labels)


def fit(folder, epochs, processes=1, batch=32, is_resumed=False):
    """Trains for some epochs, or goes on from the last checkpoint of a folder; the trainer and the model."""
    lightning.seed_everything(0)
    last = ModelCheckpoint(folder, save_last=True)  # of the last epoch
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=processes,
        strategy="ddp" if processes > 1 else "auto",
        max_epochs=epochs,
        callbacks=[last],
        logger=False,
        enable_progress_bar=False,
        use_distributed_sampler=False,
    )
    model = Tagger()
    # Not shuffled, so that processes see together what one process sees.
    shares = (
        DistributedSampler(jets(128, seed), trainer.world_size, trainer.global_rank, shuffle=False) for seed in (1, 2)
    )
    train, valid = (DataLoader(share.dataset, batch // processes, sampler=share) for share in shares)
    trainer.fit(model, train, valid, ckpt_path=str(Path(folder) / "last.ckpt") if is_resumed else None)
    # In inference mode.
    trainer.validate(model, valid, verbose=False)
    return trainer, model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", default="run")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--resume", action="store_true")
    arguments = parser.parse_args()
    trainer, _ = fit(arguments.folder, arguments.epochs, arguments.processes, is_resumed=arguments.resume)
    if trainer.is_global_zero:
        print(f"valid {trainer.callback_metrics['valid']:.6f}")


if __name__ == "__main__":
    main()
